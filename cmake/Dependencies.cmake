# Header-only libraries, each from its system package or from KVB_HEADERS (a private folder of headers for the Darwin
# cross-build: /usr/include itself must never be on a Darwin include path).
set(KVB_HEADERS "" CACHE PATH "folder with hwy/, xxhash.h (cross-builds)")

function(kvb_header_library name header)
  find_path(KVB_${name}_INCLUDE ${header} HINTS ${KVB_HEADERS} $ENV{KVB_HEADERS} NO_CMAKE_FIND_ROOT_PATH REQUIRED)
  add_library(kvb_${name} INTERFACE)
  add_library(kvb::${name} ALIAS kvb_${name})
  if(NOT KVB_${name}_INCLUDE STREQUAL "/usr/include")
    target_include_directories(kvb_${name} SYSTEM INTERFACE ${KVB_${name}_INCLUDE})
  endif()
endfunction()

kvb_header_library(hwy hwy/highway.h)
kvb_header_library(xxhash xxhash.h)
target_compile_definitions(kvb_xxhash INTERFACE XXH_INLINE_ALL=1)
if(CMAKE_SYSTEM_NAME STREQUAL "Darwin")
  target_compile_definitions(kvb_hwy INTERFACE HWY_COMPILE_ONLY_STATIC=1)  # one target (NEON): header-only
else()
  find_library(KVB_HWY_LIBRARY hwy REQUIRED)  # run-time dispatch needs the library
  target_link_libraries(kvb_hwy INTERFACE ${KVB_HWY_LIBRARY})
endif()
