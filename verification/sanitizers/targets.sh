# Sourced by the sanitizer scripts: the test targets that they build, beside the library's own tests and `faults`.
targets=()
for name in seeds events stress; do
    [[ -e tests/$name.rs || -e verification/$name/main.rs ]] || continue
    targets+=(--test "$name")
done
