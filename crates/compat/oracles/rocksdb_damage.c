/* RocksDB for the damage table: writes the databases that are damaged, and reads what is left of them. Used by
 * crates/testkit/src/damage/peer.rs, which says what the lines on the pipes mean. Linked with the library in the
 * Java package, which exports the C interface too.
 *
 * Each damaged database is opened in a child of its own, which the kernel ends when it takes too long: a crash or
 * a hang is an outcome, not the end of the run. */
#include <rocksdb/c.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define CFS 2
static const char *const NAMES[CFS] = {"default", "second"};

static rocksdb_t *db;
static rocksdb_column_family_handle_t *cfs[CFS];
static char *error;

static void fail(const char *what, const char *why) {
  fprintf(stderr, "error: %s: %s\n", what, why);
  exit(2);
}
static void check(const char *what) {
  if (error) fail(what, error);
}

/* Opens the database with the options it was made with. */
static void open_db(const char *dir, const char *text) {
  rocksdb_options_t *base = rocksdb_options_create(), *options = rocksdb_options_create();
  rocksdb_options_set_create_if_missing(base, 1);
  rocksdb_options_set_create_missing_column_families(base, 1);
  rocksdb_get_options_from_string(base, text, options, &error);
  check("options");
  const rocksdb_options_t *both[CFS] = {options, options};
  db = rocksdb_open_column_families(options, dir, CFS, NAMES, both, cfs, &error);
}

/* Bytes and their hexadecimal digits. */
static char *unhex(const char *text, size_t *len) {
  char *bytes = malloc(strlen(text) / 2 + 1);
  *len = 0;
  for (unsigned byte; sscanf(text, "%2x", &byte) == 1; text += 2) bytes[(*len)++] = (char)byte;
  return bytes;
}
static void print_hex(const char *bytes, size_t len) {
  static const char digits[] = "0123456789abcdef";
  for (size_t i = 0; i < len; i++) {
    putchar(digits[(unsigned char)bytes[i] >> 4]);
    putchar(digits[bytes[i] & 15]);
  }
}
static void print_error(void) {
  printf(" error ");
  for (const char *at = error; *at; at++) putchar(*at == '\n' ? ' ' : *at);
  putchar('\n');
  free(error);
  error = 0;
}

static int cf_of(const char *name) {
  for (int cf = 0; cf < CFS; cf++)
    if (!strcmp(name, NAMES[cf])) return cf;
  fail("no column family", name);
  return 0;
}

/* Does what standard input says, then ends without closing the database, as a power loss would. */
static void write_db(const char *dir, const char *text) {
  open_db(dir, text);
  check("open");
  rocksdb_writeoptions_t *synced = rocksdb_writeoptions_create();
  rocksdb_writeoptions_set_sync(synced, 1);
  rocksdb_flushoptions_t *waiting = rocksdb_flushoptions_create();
  rocksdb_flushoptions_set_wait(waiting, 1);
  rocksdb_compactoptions_t *forced = rocksdb_compactoptions_create();
  rocksdb_compactoptions_set_bottommost_level_compaction(forced, 2);
  rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
  char *line = 0;
  size_t capacity = 0;
  while (getline(&line, &capacity, stdin) > 0) {
    char *word = strtok(line, " \n"), *first = strtok(0, " \n"), *second = strtok(0, " \n"), *third = strtok(0, " \n");
    size_t key_len = 0, value_len = 0;
    char *key = second ? unhex(second, &key_len) : 0, *value = third ? unhex(third, &value_len) : 0;
    if (!strcmp(word, "put")) {
      rocksdb_writebatch_put_cf(batch, cfs[cf_of(first)], key, key_len, value ? value : "", value_len);
    } else if (!strcmp(word, "delete")) {
      rocksdb_writebatch_delete_cf(batch, cfs[cf_of(first)], key, key_len);
    } else if (!strcmp(word, "merge")) {
      rocksdb_writebatch_merge_cf(batch, cfs[cf_of(first)], key, key_len, value, value_len);
    } else if (!strcmp(word, "delete_range")) {
      rocksdb_writebatch_delete_range_cf(batch, cfs[cf_of(first)], key, key_len, value, value_len);
    } else if (!strcmp(word, "write")) {
      rocksdb_write(db, synced, batch, &error);
      rocksdb_writebatch_clear(batch);
    } else if (!strcmp(word, "flush")) {
      rocksdb_flush_cf(db, waiting, cfs[cf_of(first)], &error);
    } else if (!strcmp(word, "compact")) {
      rocksdb_compact_range_cf_opt(db, cfs[cf_of(first)], forced, 0, 0, 0, 0);
    } else if (!strcmp(word, "pause")) {
      usleep(300000); /* Files that nobody needs are gone then. */
    } else {
      fail("no such step", word);
    }
    check(word);
    free(key);
    free(value);
  }
  printf("oldest-wal %s\n", rocksdb_property_value(db, "rocksdb.min-log-number-to-keep"));
  const rocksdb_livefiles_t *files = rocksdb_livefiles(db);
  for (int i = 0; i < rocksdb_livefiles_count(files); i++) printf("live %s\n", rocksdb_livefiles_name(files, i));
  printf("ok\n");
  fflush(stdout);
  _exit(0);
}

struct keys {
  size_t count;
  char *bytes[256];
  size_t lens[256];
};

static void print_answer(const char *cf, const struct keys *keys, size_t i, const char *value, size_t len) {
  printf("get %s ", cf);
  print_hex(keys->bytes[i], keys->lens[i]);
  if (error) {
    print_error();
  } else if (!value) {
    printf(" none\n");
  } else {
    printf(" value ");
    print_hex(value, len);
    putchar('\n');
  }
}

static void read_cf(int cf, const struct keys *keys, const rocksdb_readoptions_t *options) {
  const rocksdb_column_family_handle_t *same[256];
  char *values[256], *errors[256];
  size_t lens[256];
  for (size_t i = 0; i < keys->count; i++) same[i] = cfs[cf];
  rocksdb_multi_get_cf(db, options, same, keys->count, (const char *const *)keys->bytes, keys->lens, values, lens,
                       errors);
  for (size_t i = 0; i < keys->count; i++) {
    error = errors[i];
    print_answer(NAMES[cf], keys, i, values[i], lens[i]);
  }
  for (size_t i = 0; i < keys->count; i++) {
    char *value = rocksdb_get_cf(db, options, cfs[cf], keys->bytes[i], keys->lens[i], &lens[i], &error);
    print_answer(NAMES[cf], keys, i, value, lens[i]);
  }
  for (int backward = 0; backward < 2; backward++) {
    rocksdb_iterator_t *it = rocksdb_create_iterator_cf(db, options, cfs[cf]);
    printf("scan %s %s\n", NAMES[cf], backward ? "backward" : "forward");
    for (backward ? rocksdb_iter_seek_to_last(it) : rocksdb_iter_seek_to_first(it); rocksdb_iter_valid(it);
         backward ? rocksdb_iter_prev(it) : rocksdb_iter_next(it)) {
      size_t key_len, value_len;
      const char *key = rocksdb_iter_key(it, &key_len), *value = rocksdb_iter_value(it, &value_len);
      printf("entry ");
      print_hex(key, key_len);
      putchar(' ');
      print_hex(value, value_len);
      putchar('\n');
    }
    rocksdb_iter_get_error(it, &error);
    printf("scanned");
    if (error) print_error();
    else printf(" whole\n");
    rocksdb_iter_destroy(it);
  }
}

/* Opens the database and prints every answer that it gives. */
static void read_db(const char *dir, const char *text, const struct keys *keys) {
  open_db(dir, text);
  printf("open");
  if (error) {
    print_error();
    return;
  }
  printf(" done\n");
  rocksdb_readoptions_t *options = rocksdb_readoptions_create();
  rocksdb_readoptions_set_verify_checksums(options, 1);
  for (int cf = 0; cf < CFS; cf++) read_cf(cf, keys, options);
  for (int cf = 0; cf < CFS; cf++) rocksdb_column_family_handle_destroy(cfs[cf]);
  rocksdb_close(db);
}

/* The first line has the keys; each further one names a directory to read. */
static void serve(const char *text, unsigned seconds) {
  struct keys keys = {0};
  char *line = 0;
  size_t capacity = 0;
  if (getline(&line, &capacity, stdin) <= 0) fail("keys", "none");
  for (char *word = strtok(line, " \n"); word; word = strtok(0, " \n")) {
    if (keys.count == 256) fail("keys", "too many");
    keys.bytes[keys.count] = unhex(word, &keys.lens[keys.count]);
    keys.count++;
  }
  while (getline(&line, &capacity, stdin) > 0) {
    line[strcspn(line, "\n")] = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) fail("fork", "no process");
    if (child == 0) {
      struct rlimit no_core = {0, 0};
      setrlimit(RLIMIT_CORE, &no_core);
      alarm(seconds);
      read_db(line, text, &keys);
      fflush(stdout);
      _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) < 0) fail("waitpid", "no child");
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) printf("\nend hang\n");
    else if (WIFSIGNALED(status)) printf("\nend signal %d\n", WTERMSIG(status));
    else printf("\nend exit %d\n", WEXITSTATUS(status));
    fflush(stdout);
  }
}

int main(int argc, char **argv) {
  if (argc == 4 && !strcmp(argv[1], "write")) write_db(argv[2], argv[3]);
  else if (argc == 4 && !strcmp(argv[1], "read")) serve(argv[3], (unsigned)atoi(argv[2]));
  else fail("usage", "write DIR OPTIONS | read SECONDS OPTIONS");
  return 0;
}
