/* The cheapest honest ways to touch every byte once: what scan.py measures the scan against.
   Compiled by scan.py for the machine it runs on. Pure functions on the caller's memory. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint64_t lanes __attribute__((vector_size(64), aligned(1)));
enum { kUnroll = 4, kStep = kUnroll * sizeof(lanes) };

static uint64_t fold(const lanes *sums) {
  uint64_t total = 0;
  for (int k = 0; k < kUnroll; ++k)
    for (size_t i = 0; i < sizeof(lanes) / sizeof(uint64_t); ++i) total += sums[k][i];
  return total;
}

/* One stream; byte_count is a multiple of 256. */
uint64_t sum_one(const char *a, size_t byte_count) {
  lanes sums[kUnroll] = {{0}};
  for (size_t i = 0; i < byte_count; i += kStep)
    for (int k = 0; k < kUnroll; ++k) sums[k] += *(const lanes *)(a + i + k * sizeof(lanes));
  return fold(sums);
}

/* Two streams side by side. */
uint64_t sum_two(const char *a, const char *b, size_t byte_count) {
  lanes sums[kUnroll] = {{0}};
  for (size_t i = 0; i < byte_count; i += kStep / 2)
    for (int k = 0; k < kUnroll / 2; ++k) {
      sums[2 * k] += *(const lanes *)(a + i + k * sizeof(lanes));
      sums[2 * k + 1] += *(const lanes *)(b + i + k * sizeof(lanes));
    }
  return fold(sums);
}
