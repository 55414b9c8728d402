#!/usr/bin/env bash
# Says of each configuration whether it fits its card, in the log and in the summary of the job, and fails where one does not.
#   FILES     scenario files and configurations of other projects, one a line; patterns are expanded, and files that
#             make one run together are joined by " + " (accelerate's and trl's)
#   MODEL     the model that all train; empty: the one that each names
#   CONFIG    or its config.json
#   GPU       the card that they must fit; empty: the one that each names
#   HEADROOM  the command
# GitHub gives GITHUB_STEP_SUMMARY and GITHUB_OUTPUT, files to write to.
set -uo pipefail
shopt -s globstar nullglob

flags=()
[ -z "${GPU:-}" ] || flags+=(--gpu "$GPU")
[ -z "${MODEL:-}" ] || flags+=(--model "$MODEL")
[ -z "${CONFIG:-}" ] || flags+=(--config "$CONFIG")

# expand PATTERN: the files that it names, in `found`. Names with blanks stay whole: nothing is split.
expand() {
    local IFS=''
    found=($1)
    [ ${#found[@]} -gt 0 ] || { echo "::error::no file is called $1"; exit 2; }
}

answers=$(mktemp)
trap 'rm -f "$answers"' EXIT
fits=true status=0 asked=0

# gate FILE MORE...: the answer to a file, over which the others are read.
gate() {
    local file=$1 more=() other code said
    shift
    for other in "$@"; do more+=(--from "$other"); done
    said=$("$HEADROOM" estimate ${flags[@]+"${flags[@]}"} ${more[@]+"${more[@]}"} --fail-unless-fits --markdown -- "$file" </dev/null 2>"$answers")
    code=$?
    asked=$((asked + 1))
    {
        printf '### %s\n\n' "$file${*:+ + $*}"
        [ -z "$said" ] || printf '%s\n\n' "$said"
        [ ! -s "$answers" ] || sed 's/^/- /' "$answers"
        printf '\n'
    } >>"${GITHUB_STEP_SUMMARY:-/dev/stdout}"
    # what was not understood of a file
    while IFS= read -r said; do
        case $said in "note: "*) echo "::warning file=$file::${said#note: }" ;; esac
    done <"$answers"
    case $code in
    0) echo "fits: $file" ;;
    1) fits=false && echo "::error file=$file::$file does not run${GPU:+ on $GPU} as it is; headroom levers $file says what to change" ;;
    *) fits=false && echo "::error file=$file::$file has no answer: $(grep -v '^note: ' "$answers" | tr '\n' ' ')" ;;
    esac
    [ $code -le $status ] || status=$code
}

while IFS= read -r line; do
    line=${line%$'\r'}
    [ -n "$line" ] || continue
    more=()
    while [[ $line == *" + "* ]]; do
        expand "${line##* + }"
        more=("${found[@]}" ${more[@]+"${more[@]}"})
        line=${line% + *}
    done
    expand "$line"
    for file in "${found[@]}"; do gate "$file" ${more[@]+"${more[@]}"}; done
done <<<"${FILES:-}"
[ $asked -gt 0 ] || { echo "::error::name configurations in the input 'files'"; exit 2; }

echo "fits=$fits" >>"${GITHUB_OUTPUT:-/dev/null}"
exit $status
