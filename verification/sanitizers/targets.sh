# Sourced by the sanitizer scripts: the test targets that they build, beside the library's own tests and `faults`.
targets=()
for name in seeds events wait drains deadlines stress; do
    [[ -e tests/$name.rs || -e verification/$name/main.rs ]] || { echo "no such test target: $name" >&2; exit 1; }
    targets+=(--test "$name")
done
