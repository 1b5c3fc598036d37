# Objective-C++ for the two supported platforms: target kvb::platform links Apple's frameworks on macOS, our simulator on Linux.
add_library(kvb_platform INTERFACE)
add_library(kvb::platform ALIAS kvb_platform)
add_library(kvb_platform_link INTERFACE)  # its link part alone, which the installed package exports
target_link_libraries(kvb_platform INTERFACE kvb_platform_link)
if(APPLE)
  target_compile_options(kvb_platform INTERFACE $<$<COMPILE_LANGUAGE:OBJC,OBJCXX>:-fno-objc-arc -Werror=unguarded-availability-new>)
  target_link_libraries(kvb_platform_link INTERFACE "-framework Foundation" "-framework CoreFoundation" "-framework CoreML"
    "-framework CoreVideo" "-framework IOSurface" -lobjc)
  return()
endif()

if(NOT CMAKE_OBJCXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "Objective-C blocks need clang on Linux: use cmake/toolchain-linux.cmake")
endif()
# Only <objc/*.h> of GCC's private include folder: the whole folder would shadow clang's intrinsics and stdatomic.h.
find_program(KVB_GCC NAMES gcc REQUIRED)
execute_process(COMMAND ${KVB_GCC} -print-file-name=include OUTPUT_VARIABLE gcc_include OUTPUT_STRIP_TRAILING_WHITESPACE)
file(GLOB objc_headers ${gcc_include}/objc/*.h)
if(NOT objc_headers)
  message(FATAL_ERROR "no Objective-C headers in ${gcc_include}: install gobjc++")
endif()
set(objc_include ${CMAKE_BINARY_DIR}/objc-include)
file(COPY ${objc_headers} DESTINATION ${objc_include}/objc)
execute_process(COMMAND ${KVB_GCC} -print-file-name=libobjc.so OUTPUT_VARIABLE KVB_LIBOBJC OUTPUT_STRIP_TRAILING_WHITESPACE)
find_path(KVB_GNUSTEP_INCLUDE Foundation/Foundation.h PATH_SUFFIXES GNUstep REQUIRED)
find_library(KVB_GNUSTEP_BASE gnustep-base REQUIRED)

target_compile_options(kvb_platform INTERFACE $<$<COMPILE_LANGUAGE:OBJC,OBJCXX>:
  -fobjc-runtime=gcc;-fblocks;-fexceptions;-fobjc-exceptions;-fconstant-string-class=NSConstantString>)
target_compile_definitions(kvb_platform INTERFACE $<$<COMPILE_LANGUAGE:OBJC,OBJCXX>:
  _NATIVE_OBJC_EXCEPTIONS=1;GNUSTEP=1;GNUSTEP_BASE_LIBRARY=1;GNU_RUNTIME=1>)
target_include_directories(kvb_platform SYSTEM INTERFACE $<$<COMPILE_LANGUAGE:OBJC,OBJCXX>:
  ${objc_include};${CMAKE_CURRENT_SOURCE_DIR}/src/simulator/runtime/include;${KVB_GNUSTEP_INCLUDE}>)
target_include_directories(kvb_platform INTERFACE $<$<COMPILE_LANGUAGE:OBJC,OBJCXX>:
  ${CMAKE_CURRENT_SOURCE_DIR}/src/simulator/include>)

add_subdirectory(src/simulator)
# The simulator first: its blocks runtime, not the obsolete one that gnustep-base exports, must be found.
target_link_libraries(kvb_platform_link INTERFACE coreml_simulator $<BUILD_INTERFACE:${KVB_GNUSTEP_BASE}>
  $<BUILD_INTERFACE:${KVB_LIBOBJC}> $<INSTALL_INTERFACE:gnustep-base> $<INSTALL_INTERFACE:objc>)
