#!/bin/bash
# Writes the King James Version as plain text to the file $1 (about 4 MB): one document per chapter,
# its heading, an empty line, then a verse a line. Two empty lines separate documents, so the
# separator for `actortrain data prepare` is three newlines.
set -euo pipefail

if [ $# -ne 1 ]; then
  echo "usage: $0 OUTPUT_FILE" >&2
  exit 2
fi
if ! command -v bible >/dev/null; then
  echo "quickstart_text.sh: no program \"bible\"; install the Debian package bible-kjv" >&2
  exit 1
fi

out="$1"
partial="$out.partial"
trap 'rm -f "$partial"' EXIT

# Wide lines keep a verse on one line; a verse starts with blanks and its number, a heading does not.
bible -l100000 gen1:1-rev22:21 </dev/null | awk '
  /^$/ { next }
  /^ +[0-9]+ / { sub(/^ +[0-9]+ /, ""); print; next }
  { if (seen++) printf "\n\n"; print; print "" }
' >"$partial"

chapters=$(grep -c -E '^[A-Za-z0-9 ]+ [0-9]+$' "$partial")
if [ "$chapters" -lt 1189 ]; then
  echo "quickstart_text.sh: found $chapters chapters where 1189 belong; is bible-kjv whole?" >&2
  exit 1
fi
mv "$partial" "$out"
