/* LevelDB, for the interop tests. Arguments and output: src/driver.rs. It has one column family and no
 * option strings: cf_options may be empty, `snappy`, `none`, with `,bloom` for a filter.
 * cc leveldb_driver.c -lleveldb */
#include <leveldb/c.h>

#include "workload.h"

static char *error;
static void check(const char *what) {
  if (error) fail(what, error);
}

static leveldb_t *open_db(const struct arguments *a) {
  leveldb_options_t *options = leveldb_options_create();
  leveldb_options_set_create_if_missing(options, !strcmp(a->command, "write"));
  leveldb_options_set_write_buffer_size(options, 64 << 10);
  leveldb_options_set_max_file_size(options, 1 << 20);
  leveldb_options_set_compression(options, strstr(a->cf_options, "none") ? 0 : 1);
  if (strstr(a->cf_options, "bloom"))
    leveldb_options_set_filter_policy(options, leveldb_filterpolicy_create_bloom(10));
  leveldb_t *db = leveldb_open(options, a->dir, &error);
  check("open");
  return db;
}

static void write_round(const struct arguments *a, leveldb_t *db, uint64_t round) {
  leveldb_writeoptions_t *options = leveldb_writeoptions_create();
  leveldb_writebatch_t *batch = leveldb_writebatch_create();
  for (uint64_t i = 0; i < a->keys; i++) {
    struct operation operations[2];
    int count = make_operations(a, round, 0, i, operations);
    for (struct operation *o = operations; o < operations + count; o++) {
      if (o->kind == PUT)
        leveldb_writebatch_put(batch, o->key, o->key_len, o->value, o->value_len);
      else
        leveldb_writebatch_delete(batch, o->key, o->key_len);
      free(o->value);
    }
    if (i % 8 == 7 || i + 1 == a->keys) {
      leveldb_write(db, options, batch, &error);
      check("write");
      leveldb_writebatch_clear(batch);
    }
  }
  if (action_is(a, round, "compact")) leveldb_compact_range(db, 0, 0, 0, 0);
}

static void dump(const struct arguments *a, leveldb_t *db) {
  leveldb_readoptions_t *options = leveldb_readoptions_create();
  leveldb_readoptions_set_verify_checksums(options, 1);
  leveldb_iterator_t *it = leveldb_create_iterator(db, options);
  unsigned long long count = 0;
  uint32_t crc[2] = {0, 0}, lookups = 0;
  for (int backward = 0; backward < 2; backward++) {
    for (backward ? leveldb_iter_seek_to_last(it) : leveldb_iter_seek_to_first(it); leveldb_iter_valid(it);
         backward ? leveldb_iter_prev(it) : leveldb_iter_next(it)) {
      size_t key_len, value_len;
      const char *key = leveldb_iter_key(it, &key_len), *value = leveldb_iter_value(it, &value_len);
      crc[backward] = crc32_sized(crc32_sized(crc[backward], key, key_len), value, value_len);
      count += !backward;
    }
    leveldb_iter_get_error(it, &error);
    check("iterate");
  }
  leveldb_iter_destroy(it);
  for (uint64_t i = 0; i < LOOKUPS; i++) {
    char key[64];
    size_t value_len, key_len = lookup_key(a, i, key);
    char *value = leveldb_get(db, options, key, key_len, &value_len, &error);
    check("get");
    lookups = crc32_lookup(lookups, value, value_len);
    leveldb_free(value);
  }
  printf("cf default count=%llu forward=%08x backward=%08x lookups=%08x\n", count, crc[0], crc[1], lookups);
}

int main(int argc, char **argv) {
  struct arguments a = parse_arguments(argc, argv);
  if (strcmp(a.extra, "none")) cannot(a.extra);
  leveldb_t *db = open_db(&a);
  if (!strcmp(a.command, "write"))
    for (uint64_t round = a.first_round; round < a.end_round; round++) write_round(&a, db, round);
  else if (!strcmp(a.command, "dump"))
    dump(&a, db);
  else if (!strcmp(a.command, "hold"))
    wait_for_end_of_input();
  else
    fail("unknown command", a.command);
  printf("ok\n");
  fflush(stdout);
  if (a.abrupt) _exit(0);
  leveldb_close(db);
  return 0;
}
