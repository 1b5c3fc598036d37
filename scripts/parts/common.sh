# Functions that several parts share; sourced from the repository's root.

linux_only() { [[ $(uname) == Linux ]] || { echo "runs on Linux only: $1"; exit 77; }; }

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

# One build with AddressSanitizer and UndefinedBehaviorSanitizer, for the parts asan and leaks.
ASAN_BUILD=$PWD/build/parts/asan/cmake ASAN_SITE=$PWD/build/parts/asan/site
build_asan() {
  mkdir -p "${ASAN_BUILD%/*}"
  configure_and_build "$ASAN_BUILD" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DKVB_SANITIZE=address,undefined
  install_python "$ASAN_BUILD" "$ASAN_SITE"
}

# run_pytest SITE asan|tsan [PYTEST_ARGUMENT...]: the suite on an instrumented build, without its long runs and without tests/build
# and tests/e2e, which start compilers, browsers and whole command lines that a sanitizer slows down by minutes
run_pytest() {
  local site=$1 sanitizer=$2 preload
  shift 2
  preload=$(clang-19 -print-file-name="libclang_rt.$sanitizer-$(uname -m).so")
  [[ $sanitizer == asan ]] && preload+=" $(gcc -print-file-name=libstdc++.so.6)"
  PYTHONPATH=$site PYTHONMALLOC=malloc LD_PRELOAD=$preload \
    "$KVB_PYTHON" -m pytest -q -p no:cacheprovider -m "not soak and not slow" --ignore=tests/build --ignore=tests/e2e "$@"
}
