# Functions that several parts share; sourced from the repository's root.

# configure_and_build FOLDER CMAKE_OPTION...: an incremental build with native tests
configure_and_build() {
  local folder=$1
  shift
  local toolchain=()
  [[ $(uname) == Linux ]] && toolchain=(-DCMAKE_TOOLCHAIN_FILE=cmake/toolchain-linux.cmake)
  cmake -S . -B "$folder" -G Ninja ${toolchain[@]+"${toolchain[@]}"} -DKVB_BUILD_TESTS=ON -DPython_EXECUTABLE="$KVB_PYTHON" "$@" >"$folder.log" 2>&1 ||
    { cat "$folder.log"; return 1; }
  cmake --build "$folder" --parallel "$KVB_JOBS" -- --quiet
}

run_ctest() { ctest --test-dir "$1" --output-on-failure --no-tests=error --timeout 600 "${@:2}"; }

# install_python BUILD_FOLDER SITE: the extension of a build with the Python files, to be put first on PYTHONPATH; the .venv keeps its own
install_python() {
  rm -rf "$2"
  cmake --install "$1" --prefix "$2" --component python >/dev/null
  mkdir -p "$2/kvbacking"
  cp -R src/kvbacking/. "$2/kvbacking/"
}

clang_runtime() { clang-19 -print-file-name="libclang_rt.$1-$(uname -m).so"; }
