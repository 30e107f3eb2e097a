#!/usr/bin/env bash
# Builds the servers that tests of the index in a MongoDB start: scripts/mongodb.sh [java] [ferretdb] (default: both)
# They end up in target/servers, also when CARGO_TARGET_DIR says otherwise, and are built again only when what they are
# made of has changed. The exit status is 77 when one cannot be had here: something is not installed, or a download
# fails. It is 1 when a build fails.
set -euo pipefail
cd "$(dirname "$0")/.."
servers=target/servers
ferretdb=v1.24.0

if [ $# != 1 ]; then
    # One that cannot be had is no reason to do without the other.
    [ $# -gt 0 ] || set -- java ferretdb
    worst=0
    for name in "$@"; do
        status=0
        scripts/mongodb.sh "$name" || status=$?
        [ "$worst" = 1 ] || [ "$status" = 0 ] || worst=$status
    done
    exit "$worst"
fi

missing() {
    echo "SKIPPED: no $name server for tests: $1" >&2
    exit 77
}

failed() {
    echo "the $name server for tests cannot be built: see $log" >&2
    tail -20 "$log" >&2
    exit 1
}

# mongo-java-server, in memory: the good server, and with several threads a bad one.
build_java() {
    local version
    version=$(javac -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p') || true
    [ "${version:-0}" -ge 17 ] || missing "install a JDK, version 17 or later"
    if ! command -v mvn >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        { apt-get update && apt-get install --yes maven; } >/dev/null 2>&1 || true
    fi
    command -v mvn >/dev/null || missing "install Maven"
    rm -rf "$servers/java"
    if ! mvn --batch-mode --quiet --file tests/mongodb/servers/java/pom.xml package >"$log" 2>&1; then
        if grep -qE 'Could not (transfer|find|resolve)|ResolutionException|Cannot access' "$log"; then
            missing "Maven cannot download what it needs, see $log"
        fi
        failed
    fi
    mv "$servers/java/mongo-java-server.jar" "$result"
    rm -rf "$servers/java"
}

# FerretDB on SQLite: the one that has users. Its counters are bad.
build_ferretdb() {
    command -v go >/dev/null || missing "install Go, version 1.22 or later"
    local module=github.com/FerretDB/FerretDB@$ferretdb source=$servers/ferretdb.src from
    from=$(go mod download -json "$module" 2>"$log" | tee -a "$log" | sed -n 's/^[[:space:]]*"Dir": "\(.*\)",*$/\1/p') ||
        missing "Go cannot download it, see $log"
    rm -rf "$source"
    cp -R "$from" "$source"
    chmod -R u+w "$source"

    # The module lacks this file, which is made for each release, and the program does not start without it.
    echo "$ferretdb" >"$source/build/version/version.txt"
    # It answers `done: false` to the message that completes a login by SCRAM, and waits for an empty one more, as
    # MongoDB did before 4.4. The Rust driver asks for `skipEmptyExchange`, and takes `false` for a failure.
    local file=$source/internal/handler/msg_saslcontinue.go
    sed -i 's|"done", valid, // for compatibility.*|"done", conv.Valid(),|' "$file"
    if [ "$(grep -c '"done", conv.Valid(),' "$file")" != 1 ]; then
        echo "$file is not the file that was to be changed" >"$log"
        failed
    fi

    # Without PostgreSQL. Its SQLite is in Go, and needs no C compiler.
    local tags=ferretdb_no_postgresql
    export CGO_ENABLED=0
    # Downloads what the build needs, and nothing else.
    (cd "$source" && go list -deps -tags "$tags" ./cmd/ferretdb) >"$log" 2>&1 ||
        missing "Go cannot download the modules that it needs, see $log"
    (cd "$source" && go build -tags "$tags" -trimpath -buildvcs=false -o ../ferretdb.new ./cmd/ferretdb) >"$log" 2>&1 ||
        failed
    mv "$servers/ferretdb.new" "$result"
    rm -rf "$source"
}

name=$1
case $name in
    java) result=$servers/mongo-java-server.jar ;;
    ferretdb) result=$servers/ferretdb ;;
    *)
        echo "usage: scripts/mongodb.sh [java] [ferretdb]" >&2
        exit 2
        ;;
esac
log=$servers/$name.log
stamp=$servers/$name.stamp
mkdir -p "$servers"
# One at a time: two would build in the same directory.
exec 9>"$servers/$name.lock"
flock 9
sources=$(find scripts/mongodb.sh tests/mongodb/servers/java -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum)
if [ -f "$result" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$sources" ]; then
    exit 0
fi
rm -f "$stamp"
begin=$SECONDS
"build_$name"
echo "$sources" >"$stamp"
echo "$result: built in $((SECONDS - begin)) s" >&2
