// Writes the LevelDB table beside this file: cc make_leveldb.c -lleveldb && ./a.out directory
#include <leveldb/c.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
  char* error = NULL;
  leveldb_options_t* options = leveldb_options_create();
  leveldb_options_set_create_if_missing(options, 1);
  leveldb_options_set_block_size(options, 400);
  leveldb_options_set_filter_policy(options, leveldb_filterpolicy_create_bloom(10));
  leveldb_t* db = leveldb_open(options, argv[argc - 1], &error);
  leveldb_writeoptions_t* write = leveldb_writeoptions_create();
  for (int i = 0; i < 200; i++) {
    char key[32], value[64];
    snprintf(key, sizeof key, "%03d/key%05d", i / 20, i);
    snprintf(value, sizeof value, "value of %d", i);
    for (int j = 0; j < i % 5; j++) strcat(value, " again");
    leveldb_put(db, write, key, strlen(key), value, strlen(value), &error);
  }
  leveldb_compact_range(db, NULL, 0, NULL, 0);
  leveldb_close(db);
  return error != NULL;
}
