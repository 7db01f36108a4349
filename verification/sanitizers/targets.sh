# Sourced by the sanitizer scripts: the test targets that they build, beside the library's own tests.
targets=()
for name in seeds events stress faults; do
    [[ -e tests/$name.rs || -e verification/$name/main.rs ]] || continue
    targets+=(--test "$name")
done
