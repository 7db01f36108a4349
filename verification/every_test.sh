# Sourced by the scripts of targets whose tests demand by themselves that they have come to enough: `every_test TARGET` runs it, and fails if
# fewer tests have passed than there are in its sources.
every_test() {
    local target=$1 written log ran
    written=$(grep -rhE '^ *#\[test\]' "verification/$target" --include='*.rs' | wc -l)
    log=$(mktemp)
    cargo nextest run --all-features --test "$target" 2>&1 | tee "$log" || return
    ran=$(sed -nE 's/^ *Summary .* ([0-9]+) passed.*/\1/p' "$log")
    rm -f "$log"
    if [[ $written == 0 || $ran != "$written" ]]; then
        echo "$target: $written tests are written, ${ran:-none} have passed" >&2
        return 1
    fi
}
