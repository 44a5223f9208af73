/* BerkeleyDB: a transactional B-tree in a private environment. */
#include <db.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

enum { VALUE_BYTES = 1 << 16, KEY_BYTES = 256 };

struct database {
  DB_ENV* env;
  DB* db;
};

struct session {
  struct database* database;
  char key[KEY_BYTES];
  char value[VALUE_BYTES];
};

static int outcome(int code, char* error) {
  if (code == 0) return DONE;
  if (code == DB_NOTFOUND) return ABSENT;
  snprintf(error, ERROR_BYTES, "%s", db_strerror(code));
  return FAILED;
}

static DBT in(struct peer_bytes bytes) {
  DBT dbt;
  memset(&dbt, 0, sizeof(dbt));
  dbt.data = (void*)bytes.data;
  dbt.size = (u_int32_t)bytes.size;
  return dbt;
}

static DBT out(char* buffer, size_t size) {
  DBT dbt;
  memset(&dbt, 0, sizeof(dbt));
  dbt.data = buffer;
  dbt.ulen = (u_int32_t)size;
  dbt.flags = DB_DBT_USERMEM;
  return dbt;
}

static struct peer_bytes bytes(const DBT* dbt) {
  struct peer_bytes bytes = {dbt->data, dbt->size};
  return bytes;
}

static const char* version(void) {
  static char text[32];
  int major, minor, patch;
  db_version(&major, &minor, &patch);
  snprintf(text, sizeof(text), "%d.%d.%d", major, minor, patch);
  return text;
}

static void close_db(void* d) {
  struct database* database = d;
  if (database->db != NULL) database->db->close(database->db, 0);
  if (database->env != NULL) {
    database->env->txn_checkpoint(database->env, 0, 0, DB_FORCE);
    database->env->close(database->env, 0);
  }
  free(database);
}

static int open_parts(struct database* made, const char* path, const struct peer_setup* setup) {
  int code = db_env_create(&made->env, 0);
  if (code != 0) return code;
  DB_ENV* env = made->env;
  uint64_t cache = setup->cache_bytes + setup->memory_bytes;
  if ((code = env->set_cachesize(env, (u_int32_t)(cache >> 30), (u_int32_t)(cache & ((1u << 30) - 1)), 1)) != 0) return code;
  if ((code = env->set_lg_bsize(env, 16 << 20)) != 0 || (code = env->set_lg_max(env, 128 << 20)) != 0) return code;
  if ((code = env->set_lk_detect(env, DB_LOCK_DEFAULT)) != 0) return code;
  if ((code = env->set_lk_max_locks(env, 200000)) != 0 || (code = env->set_lk_max_objects(env, 200000)) != 0) return code;
  if ((code = env->log_set_config(env, DB_LOG_AUTO_REMOVE, 1)) != 0) return code;
  /* The log goes to the operating system at each commit; fdatasync only if that is asked for. */
  if (!setup->sync && (code = env->set_flags(env, DB_TXN_WRITE_NOSYNC, 1)) != 0) return code;
  u_int32_t parts = DB_INIT_MPOOL | DB_INIT_LOCK | DB_INIT_LOG | DB_INIT_TXN;
  code = env->open(env, path, DB_CREATE | DB_RECOVER | DB_PRIVATE | DB_THREAD | parts, 0644);
  if (code != 0) return code;
  if ((code = db_create(&made->db, env, 0)) != 0) return code;
  return made->db->open(made->db, NULL, "peers.db", NULL, DB_BTREE, DB_CREATE | DB_THREAD | DB_AUTO_COMMIT, 0644);
}

static int open_db(const char* path, const struct peer_setup* setup, void** db, char* error) {
  if (!setup->automatic_compaction) {
    snprintf(error, ERROR_BYTES, "a B-tree has no compactions to leave out");
    return FAILED;
  }
  struct database* made = calloc(1, sizeof(*made));
  if (made == NULL) return outcome(12 /* ENOMEM */, error);
  int code = open_parts(made, path, setup);
  if (code != 0) close_db(made);
  else *db = made;
  return outcome(code, error);
}

static int open_session(void* db, void** opened, char* error) {
  struct session* made = calloc(1, sizeof(*made));
  if (made == NULL) return outcome(12 /* ENOMEM */, error);
  made->database = db;
  *opened = made;
  return DONE;
}

static void close_session(void* s) { free(s); }

static int put(void* s, struct peer_bytes key, struct peer_bytes value, char* error) {
  DB* db = ((struct session*)s)->database->db;
  DBT k = in(key), v = in(value);
  int code;
  do code = db->put(db, NULL, &k, &v, 0);
  while (code == DB_LOCK_DEADLOCK);
  return outcome(code, error);
}

static int put_batch(void* s, const struct peer_record* records, size_t count, char* error) {
  struct database* database = ((struct session*)s)->database;
  int code;
  do {
    DB_TXN* txn = NULL;
    code = database->env->txn_begin(database->env, NULL, &txn, 0);
    if (code != 0) break;
    for (size_t i = 0; i < count && code == 0; i++) {
      DBT k = in(records[i].key), v = in(records[i].value);
      code = database->db->put(database->db, txn, &k, &v, 0);
    }
    if (code == 0) code = txn->commit(txn, 0);
    else txn->abort(txn);
  } while (code == DB_LOCK_DEADLOCK);
  return outcome(code, error);
}

static int get(void* s, struct peer_bytes key, peer_visit visit, void* context, char* error) {
  struct session* own = s;
  DB* db = own->database->db;
  DBT k = in(key), v = out(own->value, VALUE_BYTES);
  int code;
  do code = db->get(db, NULL, &k, &v, 0);
  while (code == DB_LOCK_DEADLOCK);
  if (code == 0) visit(context, key, bytes(&v));
  return outcome(code, error);
}

static int64_t scan(void* s, struct peer_bytes from, int reverse, uint64_t limit, peer_visit visit, void* context, char* error) {
  struct session* own = s;
  DB* db = own->database->db;
  DBC* cursor;
  int code = db->cursor(db, NULL, &cursor, 0);
  if (code != 0) return outcome(code, error);
  DBT k = out(own->key, KEY_BYTES), v = out(own->value, VALUE_BYTES);
  if (from.data != NULL) {
    memcpy(own->key, from.data, from.size);
    k.size = (u_int32_t)from.size;
    code = cursor->get(cursor, &k, &v, DB_SET_RANGE);
    if (reverse && code == DB_NOTFOUND) code = cursor->get(cursor, &k, &v, DB_LAST);
    else if (reverse && code == 0 && (k.size != from.size || memcmp(k.data, from.data, from.size) != 0))
      code = cursor->get(cursor, &k, &v, DB_PREV);
  } else {
    code = cursor->get(cursor, &k, &v, reverse ? DB_LAST : DB_FIRST);
  }
  uint64_t seen = 0;
  while (code == 0 && seen < limit) {
    visit(context, bytes(&k), bytes(&v));
    if (++seen == limit) break;
    do code = cursor->get(cursor, &k, &v, reverse ? DB_PREV : DB_NEXT);
    while (code == DB_LOCK_DEADLOCK);
  }
  int closed = cursor->close(cursor);
  if (code == DB_NOTFOUND) code = 0;
  if (code == 0) code = closed;
  return code == 0 ? (int64_t)seen : outcome(code, error);
}

static int settle(void* d, char* error) {
  DB_ENV* env = ((struct database*)d)->env;
  return outcome(env->txn_checkpoint(env, 0, 0, DB_FORCE), error);
}

static void statistics(void* db, char* text, size_t size) {
  (void)db;
  snprintf(text, size, "%s", "");
}

const struct peer_api peer_berkeleydb = {version,   open_db, close_db, open_session, close_session, put,       put_batch,
                                         get,       NULL,    scan,     settle,       NULL,          statistics, NULL};
