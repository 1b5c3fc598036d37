# Native Linux build of the Objective-C++ core: gcc has no blocks, so pin clang for all four languages (full paths: CMake asks for it).
find_program(KVB_CLANG NAMES clang-19 clang REQUIRED)
find_program(KVB_CLANGXX NAMES clang++-19 clang++ REQUIRED)
set(CMAKE_C_COMPILER ${KVB_CLANG})
set(CMAKE_OBJC_COMPILER ${KVB_CLANG})
set(CMAKE_CXX_COMPILER ${KVB_CLANGXX})
set(CMAKE_OBJCXX_COMPILER ${KVB_CLANGXX})
