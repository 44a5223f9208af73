/* RocksDB that does one step after the other, for the interop tests. Steps and answers: src/session.rs. Built twice: with
 * the C library, and with the one in the Java package, which exports the C interface too. */
#include <rocksdb/c.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CFS 8

static rocksdb_t *db;
static char *error;
static rocksdb_writeoptions_t *writing;
static rocksdb_readoptions_t *reading;

static char *word(void) {
  char *found = strtok(0, " \n");
  return found ? found : "";
}

/* Bytes and their hexadecimal digits; `-` is none. */
static char *unhex(const char *text, size_t *len) {
  char *bytes = malloc(strlen(text) / 2 + 1);
  *len = 0;
  for (unsigned byte; sscanf(text, "%2x", &byte) == 1; text += 2) bytes[(*len)++] = (char)byte;
  return bytes;
}
static void print_hex(const char *bytes, size_t len) {
  if (len == 0) putchar('-');
  for (size_t i = 0; i < len; i++) printf("%02x", (unsigned char)bytes[i]);
}

static rocksdb_options_t *options_of(const char *text) {
  rocksdb_options_t *base = rocksdb_options_create(), *options = rocksdb_options_create();
  rocksdb_options_set_create_if_missing(base, 1);
  rocksdb_get_options_from_string(base, text, options, &error);
  return options;
}

static void open_db(const char *how) {
  int with_ttl = !strcmp(how, "open_with_ttl"), secondary = !strcmp(how, "open_secondary");
  const char *dir = word(), *extra = with_ttl || secondary ? word() : "";
  rocksdb_options_t *options = options_of(word());
  if (error) return;
  if (with_ttl) db = rocksdb_open_with_ttl(options, dir, atoi(extra), &error);
  else if (secondary) db = rocksdb_open_as_secondary(options, dir, extra, &error);
  else db = rocksdb_open(options, dir, &error);
}

/* put:KEY:VALUE, merge:KEY:VALUE, delete:KEY or log:DATA, of one batch. */
static void write_batch(void) {
  rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
  for (char *part = word(); *part; part = word()) {
    char *kind = strsep(&part, ":"), *first = strsep(&part, ":");
    size_t key_len, value_len;
    char *key = unhex(first, &key_len), *value = unhex(part ? part : "", &value_len);
    if (!strcmp(kind, "put")) rocksdb_writebatch_put(batch, key, key_len, value, value_len);
    else if (!strcmp(kind, "merge")) rocksdb_writebatch_merge(batch, key, key_len, value, value_len);
    else if (!strcmp(kind, "delete")) rocksdb_writebatch_delete(batch, key, key_len);
    else if (!strcmp(kind, "log")) rocksdb_writebatch_put_log_data(batch, key, key_len);
    else exit(2);
    free(key);
    free(value);
  }
  rocksdb_write(db, writing, batch, &error);
  rocksdb_writebatch_destroy(batch);
}

static void flush(void) {
  rocksdb_flushoptions_t *options = rocksdb_flushoptions_create();
  rocksdb_flushoptions_set_wait(options, 1);
  rocksdb_flush(db, options, &error);
}

static void compact(void) {
  rocksdb_compactoptions_t *options = rocksdb_compactoptions_create();
  rocksdb_compactoptions_set_bottommost_level_compaction(options, 2); /* Whatever is there is written anew. */
  flush();
  rocksdb_compact_range_opt(db, options, 0, 0, 0, 0);
}

static void get(void) {
  size_t key_len, value_len;
  char *key = unhex(word(), &key_len), *value = rocksdb_get(db, reading, key, key_len, &value_len, &error);
  if (value) {
    putchar(' ');
    print_hex(value, value_len);
  }
  free(key);
  free(value);
}

static void scan(void) {
  rocksdb_iterator_t *it = rocksdb_create_iterator(db, reading);
  for (rocksdb_iter_seek_to_first(it); rocksdb_iter_valid(it); rocksdb_iter_next(it)) {
    size_t key_len, value_len;
    const char *key = rocksdb_iter_key(it, &key_len), *value = rocksdb_iter_value(it, &value_len);
    putchar(' ');
    print_hex(key, key_len);
    putchar(':');
    print_hex(value, value_len);
  }
  rocksdb_iter_get_error(it, &error);
  rocksdb_iter_destroy(it);
}

/* The batches of the log, as they are stored. */
static void updates(uint64_t since) {
  rocksdb_wal_iterator_t *it = rocksdb_get_updates_since(db, since, 0, &error);
  if (error) return;
  for (; rocksdb_wal_iter_valid(it); rocksdb_wal_iter_next(it)) {
    uint64_t sequence;
    size_t len;
    rocksdb_writebatch_t *batch = rocksdb_wal_iter_get_batch(it, &sequence);
    const char *data = rocksdb_writebatch_data(batch, &len);
    printf(" %llu:", (unsigned long long)sequence);
    print_hex(data, len);
    rocksdb_writebatch_destroy(batch);
  }
  rocksdb_wal_iter_status(it, &error);
  rocksdb_wal_iter_destroy(it);
}

/* Creates a database with the options that the newest OPTIONS file of another one has, so that it writes them down itself. */
static void copy_options(void) {
  const char *from = word(), *to = word();
  rocksdb_env_t *env = rocksdb_create_default_env();
  rocksdb_cache_t *cache = rocksdb_cache_create_lru(1 << 20);
  rocksdb_options_t *options, **cf_options;
  char **names;
  size_t count;
  rocksdb_load_latest_options(from, env, 0, cache, &options, &count, &names, &cf_options, &error);
  if (error) return;
  if (count > MAX_CFS) exit(2);
  rocksdb_options_set_create_if_missing(options, 1);
  rocksdb_options_set_create_missing_column_families(options, 1);
  rocksdb_column_family_handle_t *handles[MAX_CFS];
  rocksdb_t *copy = rocksdb_open_column_families(options, to, (int)count, (const char *const *)names,
                                                 (const rocksdb_options_t *const *)cf_options, handles, &error);
  if (error) return;
  for (size_t i = 0; i < count; i++) {
    printf(" %s", names[i]);
    rocksdb_column_family_handle_destroy(handles[i]);
  }
  rocksdb_close(copy);
}

int main(void) {
  writing = rocksdb_writeoptions_create();
  reading = rocksdb_readoptions_create();
  rocksdb_readoptions_set_verify_checksums(reading, 1);
  rocksdb_readoptions_set_total_order_seek(reading, 1);
  char *line = 0;
  size_t capacity = 0;
  while (getline(&line, &capacity, stdin) > 0) {
    const char *step = strtok(line, " \n");
    printf("answer");
    if (!strncmp(step, "open", 4)) open_db(step);
    else if (!strcmp(step, "copy_options")) copy_options();
    else if (!db) exit(2);
    else if (!strcmp(step, "write")) write_batch();
    else if (!strcmp(step, "flush")) flush();
    else if (!strcmp(step, "compact")) compact();
    else if (!strcmp(step, "get")) get();
    else if (!strcmp(step, "scan")) scan();
    else if (!strcmp(step, "updates")) updates(strtoull(word(), 0, 10));
    else if (!strcmp(step, "latest_sequence"))
      printf(" %llu", (unsigned long long)rocksdb_get_latest_sequence_number(db));
    else if (!strcmp(step, "catch_up")) rocksdb_try_catch_up_with_primary(db, &error);
    else if (!strcmp(step, "close")) {
      rocksdb_close(db);
      db = 0;
    } else exit(2);
    if (error) {
      printf("\nerror ");
      for (const char *at = error; *at; at++) putchar(*at == '\n' ? ' ' : *at);
      free(error);
      error = 0;
    } else {
      printf("\nok");
    }
    putchar('\n');
    fflush(stdout);
  }
  if (db) rocksdb_close(db);
  return 0;
}
