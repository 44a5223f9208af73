/* RocksDB through its C interface, for the interop tests. Arguments and output: src/driver.rs.
 * cc rocksdb_driver.c -lrocksdb */
#include <rocksdb/c.h>

#include "workload.h"

#define MAX_CFS 64

static char *error;
static void check(const char *what) {
  if (error) fail(what, error);
}

struct db {
  rocksdb_t *db;
  size_t cfs;
  char *names[MAX_CFS];
  rocksdb_column_family_handle_t *handles[MAX_CFS];
};

/* PATH:BYTES,PATH:BYTES */
static void set_paths(const struct arguments *a, rocksdb_options_t *options) {
  if (*a->cf_paths) cannot("cf_paths");
  const rocksdb_dbpath_t *paths[4];
  size_t count = 0;
  char *text = strdup(a->db_paths);
  for (char *path = strtok(text, ","); path; path = strtok(0, ",")) {
    char *size = strrchr(path, ':');
    if (!size || count == 4) fail("db_paths", a->db_paths);
    *size++ = 0;
    paths[count++] = rocksdb_dbpath_create(path, strtoull(size, 0, 10));
  }
  if (count) rocksdb_options_set_db_paths(options, paths, count);
}

static rocksdb_options_t *parse_options(const struct arguments *a) {
  rocksdb_options_t *base = rocksdb_options_create(), *options = rocksdb_options_create();
  rocksdb_options_set_create_if_missing(base, !strcmp(a->command, "write"));
  rocksdb_options_set_create_missing_column_families(base, 1);
  char text[8192];
  snprintf(text, sizeof text, "%s;%s", a->db_options, a->cf_options);
  rocksdb_get_options_from_string(base, text[0] == ';' ? text + 1 : text, options, &error);
  check("options");
  set_paths(a, options);
  return options;
}

static int compare_names(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static void add_name(struct db *db, const char *name) {
  for (size_t i = 0; i < db->cfs; i++)
    if (!strcmp(db->names[i], name)) return;
  if (db->cfs == MAX_CFS) fail("open", "too many column families");
  db->names[db->cfs++] = strdup(name);
}

static struct db open_db(const struct arguments *a) {
  struct db db = {0};
  rocksdb_options_t *options = parse_options(a);
  size_t existing = 0;
  char *list_error = 0;
  char **names = rocksdb_list_column_families(options, a->dir, &existing, &list_error);
  for (size_t i = 0; i < existing && !list_error; i++) add_name(&db, names[i]);
  if (list_error && strcmp(a->command, "write")) fail("list column families", list_error);
  add_name(&db, "default");
  for (uint64_t cf = 1; cf < a->cfs && !strcmp(a->command, "write"); cf++) {
    char name[16];
    sprintf(name, "cf%d", (int)cf);
    add_name(&db, name);
  }
  qsort(db.names, db.cfs, sizeof db.names[0], compare_names);
  const rocksdb_options_t *cf_options[MAX_CFS];
  for (size_t i = 0; i < db.cfs; i++) cf_options[i] = options;
  const char *const *db_names = (const char *const *)db.names;
  if (a->read_only)
    db.db = rocksdb_open_for_read_only_column_families(options, a->dir, (int)db.cfs, db_names, cf_options,
                                                       db.handles, 0, &error);
  else
    db.db = rocksdb_open_column_families(options, a->dir, (int)db.cfs, db_names, cf_options, db.handles,
                                         &error);
  check("open");
  return db;
}

static rocksdb_column_family_handle_t *handle(const struct db *db, uint64_t cf) {
  char name[16] = "default";
  if (cf > 0) sprintf(name, "cf%d", (int)cf);
  for (size_t i = 0; i < db->cfs; i++)
    if (!strcmp(db->names[i], name)) return db->handles[i];
  fail("no column family", name);
  return 0;
}

static void write_round(const struct arguments *a, struct db *db, uint64_t round) {
  rocksdb_writeoptions_t *options = rocksdb_writeoptions_create();
  rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
  for (uint64_t i = 0; i < a->keys; i++) {
    for (uint64_t cf = 0; cf < a->cfs; cf++) {
      struct operation operations[2];
      int count = make_operations(a, round, cf, i, operations);
      for (struct operation *o = operations; o < operations + count; o++) {
        if (o->kind == PUT)
          rocksdb_writebatch_put_cf(batch, handle(db, cf), o->key, o->key_len, o->value, o->value_len);
        else if (o->kind == DELETE)
          rocksdb_writebatch_delete_cf(batch, handle(db, cf), o->key, o->key_len);
        else
          rocksdb_writebatch_singledelete_cf(batch, handle(db, cf), o->key, o->key_len);
        free(o->value);
      }
    }
    if (i % 8 == 7 || i + 1 == a->keys) {
      rocksdb_write(db->db, options, batch, &error);
      check("write");
      rocksdb_writebatch_clear(batch);
    }
  }
}

/* What Ironstone may not know yet. */
static void write_extra(const struct arguments *a, struct db *db) {
  rocksdb_writeoptions_t *options = rocksdb_writeoptions_create();
  if (!strcmp(a->extra, "range_delete"))
    rocksdb_delete_range_cf(db->db, options, handle(db, 0), "key0000001", 10, "key0000003", 10, &error);
  else if (!strcmp(a->extra, "wide_range_delete"))
    rocksdb_delete_range_cf(db->db, options, handle(db, 0), "key0000010", 10, "key0000150", 10, &error);
  else if (!strcmp(a->extra, "merge")) /* Needs merge_operator=uint64add. */
    rocksdb_merge_cf(db->db, options, handle(db, 0), "counter", 7, "\1\0\0\0\0\0\0\0", 8, &error);
  else if (strcmp(a->extra, "none"))
    cannot(a->extra);
  check("extra");
}

static void run_action(const struct arguments *a, struct db *db, uint64_t round) {
  rocksdb_flushoptions_t *options = rocksdb_flushoptions_create();
  rocksdb_flushoptions_set_wait(options, 1);
  int compact = action_is(a, round, "compact"), flush = action_is(a, round, "flush");
  for (size_t i = 0; i < db->cfs; i++) {
    if (flush || compact) rocksdb_flush_cf(db->db, options, db->handles[i], &error);
    check("flush");
    if (compact) rocksdb_compact_range_cf(db->db, db->handles[i], 0, 0, 0, 0);
  }
}

static void dump_cf(const struct arguments *a, struct db *db, size_t cf) {
  rocksdb_readoptions_t *options = rocksdb_readoptions_create();
  rocksdb_readoptions_set_verify_checksums(options, 1);
  rocksdb_readoptions_set_total_order_seek(options, 1);
  rocksdb_iterator_t *it = rocksdb_create_iterator_cf(db->db, options, db->handles[cf]);
  unsigned long long count = 0;
  uint32_t crc[2] = {0, 0}, lookups = 0;
  for (int backward = 0; backward < (a->forward_only ? 1 : 2); backward++) {
    for (backward ? rocksdb_iter_seek_to_last(it) : rocksdb_iter_seek_to_first(it); rocksdb_iter_valid(it);
         backward ? rocksdb_iter_prev(it) : rocksdb_iter_next(it)) {
      size_t key_len, value_len;
      const char *key = rocksdb_iter_key(it, &key_len), *value = rocksdb_iter_value(it, &value_len);
      crc[backward] = crc32_sized(crc32_sized(crc[backward], key, key_len), value, value_len);
      count += !backward;
    }
    rocksdb_iter_get_error(it, &error);
    check("iterate");
  }
  rocksdb_iter_destroy(it);
  for (uint64_t i = 0; i < LOOKUPS; i++) {
    char key[64];
    size_t value_len, key_len = lookup_key(a, i, key);
    char *value = rocksdb_get_cf(db->db, options, db->handles[cf], key, key_len, &value_len, &error);
    check("get");
    lookups = crc32_lookup(lookups, value, value_len);
    free(value);
  }
  printf("cf %s count=%llu forward=%08x backward=%08x lookups=%08x\n", db->names[cf], count, crc[0], crc[1],
         lookups);
}

static void print_sizes(const struct arguments *a, struct db *db, size_t cf) {
  char begins[21][64], ends[21][64];
  const char *begin[21], *end[21];
  size_t begin_len[21], end_len[21];
  uint64_t sizes[21];
  for (int part = 0; part <= 20; part++) {
    sprintf(begins[part], "key%08llx", (unsigned long long)(a->keys * part / 10));
    sprintf(ends[part], "key%08llx", (unsigned long long)(a->keys * (part + 1) / 10));
  }
  strcpy(begins[20], "");
  strcpy(ends[20], "z");
  for (int part = 0; part <= 20; part++) {
    begin[part] = begins[part], begin_len[part] = strlen(begin[part]);
    end[part] = ends[part], end_len[part] = strlen(end[part]);
  }
  rocksdb_approximate_sizes_cf(db->db, db->handles[cf], 21, begin, begin_len, end, end_len, sizes, &error);
  check("sizes");
  printf("cf %s", db->names[cf]);
  for (int part = 0; part <= 20; part++) printf(" %llu", (unsigned long long)sizes[part]);
  printf("\n");
}

int main(int argc, char **argv) {
  struct arguments a = parse_arguments(argc, argv);
  if (!strcmp(a.command, "repair")) {
    rocksdb_repair_db(parse_options(&a), a.dir, &error);
    check("repair");
    printf("ok\n");
    return 0;
  }
  struct db db = open_db(&a);
  if (!strcmp(a.command, "write")) {
    for (uint64_t round = a.first_round; round < a.end_round; round++) {
      write_round(&a, &db, round);
      write_extra(&a, &db);
      run_action(&a, &db, round);
    }
  } else if (!strcmp(a.command, "dump")) {
    for (size_t cf = 0; cf < db.cfs; cf++) dump_cf(&a, &db, cf);
  } else if (!strcmp(a.command, "sizes")) {
    for (size_t cf = 0; cf < db.cfs; cf++) print_sizes(&a, &db, cf);
  } else if (!strcmp(a.command, "hold")) {
    wait_for_end_of_input();
  } else {
    fail("unknown command", a.command);
  }
  printf("ok\n");
  fflush(stdout);
  if (a.abrupt) _exit(0);
  for (size_t i = 0; i < db.cfs; i++) rocksdb_column_family_handle_destroy(db.handles[i]);
  rocksdb_close(db.db);
  return 0;
}
