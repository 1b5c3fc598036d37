# Python and nanobind for both extension modules. Included from the top: what find_package defines is seen in its own folder and below only.
if(CMAKE_VERSION VERSION_LESS 3.26)
  set(python_module Development.Module)
else()
  set(python_module Development.Module Development.SABIModule)
endif()
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter ${python_module})
if(NOT nanobind_ROOT)
  execute_process(COMMAND "${Python_EXECUTABLE}" -m nanobind --cmake_dir OUTPUT_STRIP_TRAILING_WHITESPACE
    OUTPUT_VARIABLE nanobind_ROOT COMMAND_ERROR_IS_FATAL ANY)
endif()
find_package(nanobind CONFIG REQUIRED)
