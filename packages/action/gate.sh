#!/usr/bin/env bash
# Says of each scenario file whether it fits its card, in the log and in the summary of the job, and fails where one does not.
#   FILES     scenario files, one a line; patterns are expanded
#   GPU       the card that they must fit; empty: the one that each names
#   HEADROOM  the command
# GitHub gives GITHUB_STEP_SUMMARY and GITHUB_OUTPUT, files to write to.
set -uo pipefail
shopt -s globstar nullglob

card=()
[ -z "${GPU:-}" ] || card=(--gpu "$GPU")

files=()
blanks=$IFS
while IFS= read -r pattern; do
    pattern=${pattern%$'\r'}
    [ -n "$pattern" ] || continue
    # A pattern is expanded and not split: names with blanks stay whole.
    IFS=''
    found=($pattern)
    IFS=$blanks
    [ ${#found[@]} -gt 0 ] || { echo "::error::no file is called $pattern"; exit 2; }
    files+=("${found[@]}")
done <<<"${FILES:-}"
[ ${#files[@]} -gt 0 ] || { echo "::error::name scenario files in the input 'files'"; exit 2; }

fits=true status=0
for file in "${files[@]}"; do
    answer=$("$HEADROOM" estimate "${card[@]}" --fail-unless-fits --markdown -- "$file" 2>&1)
    code=$?
    { printf '### %s\n\n' "$file" && printf '%s\n\n' "$answer"; } >>"${GITHUB_STEP_SUMMARY:-/dev/stdout}"
    case $code in
    0) echo "fits: $file" ;;
    1) fits=false && echo "::error file=$file::$file does not run${GPU:+ on $GPU} as it is; headroom levers $file says what to change" ;;
    *) fits=false && echo "::error file=$file::$file has no answer: ${answer//$'\n'/ }" ;;
    esac
    [ $code -le $status ] || status=$code
done
echo "fits=$fits" >>"${GITHUB_OUTPUT:-/dev/null}"
exit $status
