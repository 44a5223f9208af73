/* The workload of src/workload.rs and the digest of src/digest.rs, for the drivers in C. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t mix(uint64_t x) {
  uint64_t z = x + 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

struct arguments {
  const char *command, *dir, *after, *extra, *db_options, *cf_options, *db_paths, *cf_paths;
  uint64_t seed, cfs, keys, first_round, end_round;
  int abrupt, read_only, forward_only;
};

__attribute__((unused)) static void cannot(const char *what) {
  fprintf(stderr, "error: this driver cannot do %s\n", what);
  exit(3);
}

static void fail(const char *what, const char *error) {
  fprintf(stderr, "error: %s: %s\n", what, error);
  exit(2);
}

static struct arguments parse_arguments(int argc, char **argv) {
  struct arguments a = {.after = "none", .extra = "none", .db_options = "", .cf_options = "", .db_paths = "",
                        .cf_paths = "", .cfs = 1, .keys = 100};
  if (argc < 2) fail("usage", "driver write|dump|hold dir=PATH [name=value ...]");
  a.command = argv[1];
  for (int i = 2; i < argc; i++) {
    char *value = strchr(argv[i], '=');
    if (!value) fail("argument without a value", argv[i]);
    *value++ = 0;
    const char *name = argv[i];
    if (!strcmp(name, "dir")) a.dir = value;
    else if (!strcmp(name, "after")) a.after = value;
    else if (!strcmp(name, "extra")) a.extra = value;
    else if (!strcmp(name, "db_options")) a.db_options = value;
    else if (!strcmp(name, "cf_options")) a.cf_options = value;
    else if (!strcmp(name, "db_paths")) a.db_paths = value;
    else if (!strcmp(name, "cf_paths")) a.cf_paths = value;
    else if (!strcmp(name, "seed")) a.seed = strtoull(value, 0, 10);
    else if (!strcmp(name, "cfs")) a.cfs = strtoull(value, 0, 10);
    else if (!strcmp(name, "keys")) a.keys = strtoull(value, 0, 10);
    else if (!strcmp(name, "exit")) a.abrupt = !strcmp(value, "abrupt");
    else if (!strcmp(name, "read_only")) a.read_only = atoi(value);
    else if (!strcmp(name, "forward_only")) a.forward_only = atoi(value);
    else if (!strcmp(name, "rounds")) {
      char *rest;
      a.first_round = strtoull(value, &rest, 10);
      a.end_round = strtoull(rest + 2, 0, 10); /* first..end */
    } else fail("unknown argument", name);
  }
  if (!a.dir) fail("usage", "dir is missing");
  return a;
}

/* The action after a round: the entry of that index in the comma-separated list, or the last one. */
static int action_is(const struct arguments *a, uint64_t round, const char *action) {
  const char *entry = a->after;
  for (uint64_t i = a->first_round; i < round; i++) {
    const char *next = strchr(entry, ',');
    if (!next) break;
    entry = next + 1;
  }
  return !strncmp(entry, action, strlen(action));
}

enum kind { PUT, DELETE, SINGLE_DELETE };
struct operation {
  enum kind kind;
  char key[64], *value;
  size_t key_len, value_len;
};

static size_t make_key(char *key, uint64_t number) {
  size_t len = (size_t)sprintf(key, "key%08llx", (unsigned long long)number);
  for (uint64_t i = 0; i < number % 5; i++) key[len++] = 'x';
  if (number % 7 == 0) {
    key[len++] = 0;
    key[len++] = (char)0xff;
  }
  return len;
}

static void make_value(struct operation *o, uint64_t x) {
  char pattern[17];
  sprintf(pattern, "%016llx", (unsigned long long)mix(x));
  o->value_len = (x >> 32) % 120 + ((x >> 56) == 0 ? 5000 : 0);
  o->value = malloc(o->value_len + 1);
  for (size_t i = 0; i < o->value_len; i++) o->value[i] = pattern[i % 16];
}

/* Up to two operations; returns how many. */
static int make_operations(const struct arguments *a, uint64_t round, uint64_t cf, uint64_t i,
                           struct operation out[2]) {
  uint64_t x = mix(a->seed + (round << 48) + (cf << 40) + i);
  memset(out, 0, 2 * sizeof *out);
  if (i % 16 == 15) {
    int count = 1;
    out[0].kind = PUT;
    out[0].key_len = (size_t)sprintf(out[0].key, "once-%02llu-%06llu", (unsigned long long)round,
                                     (unsigned long long)i);
    make_value(&out[0], x);
    if (round > 0 && i % 32 == 15) {
      out[1].kind = SINGLE_DELETE;
      out[1].key_len = (size_t)sprintf(out[1].key, "once-%02llu-%06llu",
                                       (unsigned long long)(round - 1), (unsigned long long)i);
      count = 2;
    }
    return count;
  }
  out[0].key_len = make_key(out[0].key, (x >> 8) % (a->keys * 2));
  out[0].kind = x % 8 == 0 ? DELETE : PUT;
  if (out[0].kind == PUT) make_value(&out[0], x);
  return 1;
}

/* The digest: CRC-32 (as in zip) over lengths and bytes. */
static uint32_t crc32_table[256];
static uint32_t crc32_extend(uint32_t crc, const void *data, size_t len) {
  if (!crc32_table[1])
    for (uint32_t i = 0; i < 256; i++) {
      uint32_t c = i;
      for (int k = 0; k < 8; k++) c = (c >> 1) ^ ((c & 1) ? 0xedb88320u : 0);
      crc32_table[i] = c;
    }
  crc = ~crc;
  for (size_t i = 0; i < len; i++) crc = crc32_table[(crc ^ ((const unsigned char *)data)[i]) & 255] ^ (crc >> 8);
  return ~crc;
}
static uint32_t crc32_sized(uint32_t crc, const void *data, size_t len) {
  unsigned char prefix[4] = {len & 255, (len >> 8) & 255, (len >> 16) & 255, (len >> 24) & 255};
  return crc32_extend(crc32_extend(crc, prefix, 4), data, len);
}

#define LOOKUPS 200
static size_t lookup_key(const struct arguments *a, uint64_t i, char *key) {
  return make_key(key, mix(a->seed + i) % (a->keys * 2 + 10));
}
/* A missing key counts as a length that no value has. */
static uint32_t crc32_lookup(uint32_t crc, const char *value, size_t len) {
  unsigned char missing[4] = {255, 255, 255, 255};
  return value ? crc32_sized(crc, value, len) : crc32_extend(crc, missing, 4);
}

static void wait_for_end_of_input(void) {
  printf("held\n");
  fflush(stdout);
  while (getchar() != EOF) {
  }
}
