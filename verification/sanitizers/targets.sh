# Sourced by the sanitizer scripts: the test targets that they build, beside the library's own tests. `leaking` ones forget leases and
# futures on purpose.
targets=() leaking=()
for name in seeds events stress; do
    [[ -e tests/$name.rs || -e tests/$name/main.rs || -e verification/$name/main.rs ]] || { echo "no such test target: $name" >&2; exit 1; }
    targets+=(--test "$name")
done
for name in faults wait drains deadlines; do
    [[ -e tests/$name.rs || -e tests/$name/main.rs || -e verification/$name/main.rs ]] || { echo "no such test target: $name" >&2; exit 1; }
    leaking+=(--test "$name")
done
