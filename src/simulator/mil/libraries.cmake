# Header-only libraries of the MIL engine: protozero (model.mlmodel), nlohmann-json (Manifest.json), Eigen (everything
# numeric). docs/simulator-engine.md says why these.
find_path(KVB_PROTOZERO_INCLUDE protozero/pbf_reader.hpp REQUIRED)
find_path(KVB_JSON_INCLUDE nlohmann/json.hpp REQUIRED)
find_path(KVB_EIGEN_INCLUDE Eigen/Core PATH_SUFFIXES eigen3 REQUIRED)
find_package(Threads REQUIRED)
foreach(folder ${KVB_PROTOZERO_INCLUDE} ${KVB_JSON_INCLUDE} ${KVB_EIGEN_INCLUDE})
  if(NOT folder STREQUAL "/usr/include")
    target_include_directories(coreml_mil SYSTEM PRIVATE ${folder})
  endif()
endforeach()
target_link_libraries(coreml_mil PRIVATE Threads::Threads)

# One object per instruction set. Optimised in every build type: unoptimised templates would be both hopelessly slow and
# emitted as mergeable functions that another instruction set's object could end up calling.
set(kernel_flags -O3 -ffp-contract=fast)
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/kernels/isa_baseline.cpp PROPERTIES COMPILE_OPTIONS "${kernel_flags}")
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/kernels/isa_avx2.cpp PROPERTIES COMPILE_OPTIONS "${kernel_flags};$<$<STREQUAL:${CMAKE_SYSTEM_PROCESSOR},x86_64>:-march=x86-64-v3>")
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/kernels/isa_avx512.cpp PROPERTIES COMPILE_OPTIONS "${kernel_flags};$<$<STREQUAL:${CMAKE_SYSTEM_PROCESSOR},x86_64>:-march=x86-64-v4;-mprefer-vector-width=512>")
