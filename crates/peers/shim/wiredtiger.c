/* WiredTiger: a B-tree table, one session and one cursor per thread. */
#include <stdlib.h>
#include <string.h>

#include "shim.h"
#include "wiredtiger.h"

#define TABLE "table:peers"

struct session {
  WT_SESSION* session;
  WT_CURSOR* cursor;
};

static int outcome(int code, char* error) {
  if (code == 0) return DONE;
  if (code == WT_NOTFOUND) return ABSENT;
  snprintf(error, ERROR_BYTES, "%s", wiredtiger_strerror(code));
  return FAILED;
}

static WT_ITEM item(struct peer_bytes bytes) {
  WT_ITEM item;
  memset(&item, 0, sizeof(item));
  item.data = bytes.data;
  item.size = bytes.size;
  return item;
}

static struct peer_bytes bytes(const WT_ITEM* item) {
  struct peer_bytes bytes = {item->data, item->size};
  return bytes;
}

static const char* version(void) {
  static char text[32];
  int major, minor, patch;
  wiredtiger_version(&major, &minor, &patch);
  snprintf(text, sizeof(text), "%d.%d.%d", major, minor, patch);
  return text;
}

static int open_db(const char* path, const struct peer_setup* setup, void** db, char* error) {
  if (!setup->automatic_compaction) {
    snprintf(error, ERROR_BYTES, "a B-tree has no compactions to leave out");
    return FAILED;
  }
  char config[512];
  /* "none" hands the log to the operating system at each commit; "fsync" is fdatasync on Linux. */
  snprintf(config, sizeof(config),
           "create,cache_size=%llu,session_max=200,eviction=(threads_min=1,threads_max=%u),"
           "log=(enabled=true,file_max=128MB),checkpoint=(wait=60,log_size=1GB),transaction_sync=(enabled=true,method=%s)",
           (unsigned long long)(setup->cache_bytes + setup->memory_bytes), setup->background_jobs,
           setup->sync ? "fsync" : "none");
  WT_CONNECTION* connection = NULL;
  int code = wiredtiger_open(path, NULL, config, &connection);
  if (code != 0) return outcome(code, error);
  WT_SESSION* session = NULL;
  code = connection->open_session(connection, NULL, NULL, &session);
  if (code == 0) {
    const char* table = setup->lz4 ? "key_format=u,value_format=u,block_compressor=lz4" : "key_format=u,value_format=u";
    code = session->create(session, TABLE, table);
    session->close(session, NULL);
  }
  if (code != 0) {
    connection->close(connection, NULL);
    return outcome(code, error);
  }
  *db = connection;
  return DONE;
}

static void close_db(void* db) {
  WT_CONNECTION* connection = db;
  connection->close(connection, "leak_memory=false");
}

static int open_session(void* db, void** opened, char* error) {
  WT_CONNECTION* connection = db;
  struct session* made = calloc(1, sizeof(*made));
  if (made == NULL) return outcome(12 /* ENOMEM */, error);
  int code = connection->open_session(connection, NULL, NULL, &made->session);
  if (code == 0) code = made->session->open_cursor(made->session, TABLE, NULL, NULL, &made->cursor);
  if (code != 0) {
    if (made->session != NULL) made->session->close(made->session, NULL);
    free(made);
    return outcome(code, error);
  }
  *opened = made;
  return DONE;
}

static void close_session(void* s) {
  struct session* own = s;
  own->session->close(own->session, NULL); /* Its cursor with it. */
  free(own);
}

static int insert(struct session* own, struct peer_bytes key, struct peer_bytes value) {
  WT_ITEM k = item(key), v = item(value);
  own->cursor->set_key(own->cursor, &k);
  own->cursor->set_value(own->cursor, &v);
  return own->cursor->insert(own->cursor);
}

static int put(void* s, struct peer_bytes key, struct peer_bytes value, char* error) {
  int code;
  do code = insert(s, key, value);
  while (code == WT_ROLLBACK); /* Another thread wrote the same record at this moment. */
  return outcome(code, error);
}

static int put_batch(void* s, const struct peer_record* records, size_t count, char* error) {
  struct session* own = s;
  int code;
  do {
    code = own->session->begin_transaction(own->session, NULL);
    if (code != 0) break;
    for (size_t i = 0; i < count && code == 0; i++) code = insert(own, records[i].key, records[i].value);
    if (code == 0) code = own->session->commit_transaction(own->session, NULL);
    else own->session->rollback_transaction(own->session, NULL);
  } while (code == WT_ROLLBACK);
  return outcome(code, error);
}

static int get(void* s, struct peer_bytes key, peer_visit visit, void* context, char* error) {
  WT_CURSOR* cursor = ((struct session*)s)->cursor;
  WT_ITEM k = item(key), value;
  cursor->set_key(cursor, &k);
  int code = cursor->search(cursor);
  if (code == 0) code = cursor->get_value(cursor, &value);
  if (code == 0) visit(context, key, bytes(&value));
  cursor->reset(cursor); /* Lets go of the page and of the view. */
  return outcome(code, error);
}

static int64_t scan(void* s, struct peer_bytes from, int reverse, uint64_t limit, peer_visit visit, void* context, char* error) {
  WT_CURSOR* cursor = ((struct session*)s)->cursor;
  int code, exact = 0;
  if (from.data != NULL) {
    WT_ITEM k = item(from);
    cursor->set_key(cursor, &k);
    code = cursor->search_near(cursor, &exact);
    if (code == 0 && exact < 0 && !reverse) code = cursor->next(cursor);
    if (code == 0 && exact > 0 && reverse) code = cursor->prev(cursor);
  } else {
    code = reverse ? cursor->prev(cursor) : cursor->next(cursor);
  }
  uint64_t seen = 0;
  while (code == 0 && seen < limit) {
    WT_ITEM key, value;
    code = cursor->get_raw_key_value(cursor, &key, &value);
    if (code != 0) break;
    visit(context, bytes(&key), bytes(&value));
    if (++seen == limit) break;
    code = reverse ? cursor->prev(cursor) : cursor->next(cursor);
  }
  cursor->reset(cursor);
  return code == 0 || code == WT_NOTFOUND ? (int64_t)seen : outcome(code, error);
}

static int settle(void* db, char* error) {
  WT_CONNECTION* connection = db;
  WT_SESSION* session;
  int code = connection->open_session(connection, NULL, NULL, &session);
  if (code != 0) return outcome(code, error);
  code = session->checkpoint(session, NULL);
  session->close(session, NULL);
  return outcome(code, error);
}

static void statistics(void* db, char* text, size_t size) {
  (void)db;
  snprintf(text, size, "%s", "");
}

const struct peer_api peer_wiredtiger = {version,   open_db, close_db, open_session, close_session, put,       put_batch,
                                         get,       NULL,    scan,     settle,       NULL,          statistics, NULL};
