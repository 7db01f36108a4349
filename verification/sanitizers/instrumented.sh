# Sourced by the sanitizers that need a standard library which is instrumented as well: `instrumented KIND RUNTIME ROUNDS
# FLAG...` tests with `-Zsanitizer=KIND`, so many times.
#
# The distribution's compiler comes with its own sources, and clang of the same LLVM with the sanitizer's runtime.
source verification/sanitizers/targets.sh

as_root() { if [[ $(id -u) == 0 ]]; then "$@"; else sudo -n "$@"; fi; }

instrumented() {
    local kind=$1 runtime=$2 rounds=$3 compiler=/usr/bin/rustc llvm host round
    shift 3
    if [[ ! -x $compiler || ! -d $("$compiler" --print sysroot)/lib/rustlib/src/rust/library ]]; then
        as_root apt-get update -qq
        as_root apt-get install -y -qq --no-install-recommends rustc-web rust-web-src
    fi
    llvm=$("$compiler" -vV | awk '/^LLVM version:/ { split($3, v, "."); print v[1] }')
    if ! command -v "clang-$llvm" >/dev/null ||
        ! ls /usr/lib/llvm-"$llvm"/lib/clang/*/lib/linux/libclang_rt."$runtime"* >/dev/null 2>&1; then
        as_root apt-get install -y -qq --no-install-recommends "clang-$llvm" "libclang-rt-$llvm-dev"
    fi
    "$compiler" --version

    host=$("$compiler" -vV | awk '/^host:/ { print $2 }')
    export RUSTC=$compiler RUSTC_BOOTSTRAP=1 RUST_BACKTRACE=0
    # Line tables are enough for reports, and cheaper to build.
    export CARGO_PROFILE_DEV_DEBUG=line-tables-only
    export RUSTFLAGS="-Zsanitizer=$kind -Zexternal-clangrt -Clinker=clang-$llvm -Clink-arg=-fsanitize=$kind $*"
    for ((round = 0; round < rounds; round++)); do
        each_tested cargo test -Zbuild-std --target "$host" --target-dir "target/$runtime" --features internals,pool \
            --lib "${targets[@]}" "${leaking[@]}"
    done
}
