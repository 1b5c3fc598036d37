// What @available compiles to. Apple's compiler links its own; the build without Apple's SDK links this one.
// Threads: any. Ownership: none.
#include <stdint.h>
#include <stdlib.h>
#include <sys/sysctl.h>

int32_t __isPlatformVersionAtLeast(uint32_t platform, uint32_t major, uint32_t minor, uint32_t subminor);

int32_t __isPlatformVersionAtLeast(uint32_t platform, uint32_t major, uint32_t minor, uint32_t subminor) {
  char text[32] = {0};
  size_t byte_count = sizeof text - 1;
  uint32_t wanted[3] = {major, minor, subminor};
  if (platform != 1 || sysctlbyname("kern.osproductversion", text, &byte_count, NULL, 0) != 0) return 0;  // 1 is macOS
  char* rest = text;
  for (int i = 0; i < 3; ++i) {
    uint32_t part = (uint32_t)strtoul(rest, &rest, 10);
    if (part != wanted[i]) return part > wanted[i];
    if (*rest == '.') ++rest;
  }
  return 1;
}
