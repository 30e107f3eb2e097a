#!/usr/bin/env bash
# Builds the servers for tests of the index in MongoDB: scripts/mongodb.sh [java] [ferretdb] (default: both)
# They are stored in target/servers, whatever CARGO_TARGET_DIR is, and are rebuilt only when their sources have
# changed. The exit status is 77 if a server is unavailable because a tool is not installed or a download
# fails, and 1 if a build fails.
set -euo pipefail
cd "$(dirname "$0")/.."
servers=target/servers
ferretdb=v1.24.0

if [ $# != 1 ]; then
    # A missing server does not prevent the other one.
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

# mongo-java-server, in memory: a correct server with one thread, and a faulty one with several.
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

# FerretDB on SQLite: the server with users. Its counters are not atomic.
build_ferretdb() {
    command -v go >/dev/null || missing "install Go, version 1.22 or later"
    local module=github.com/FerretDB/FerretDB@$ferretdb source=$servers/ferretdb.src from
    from=$(go mod download -json "$module" 2>"$log" | tee -a "$log" | sed -n 's/^[[:space:]]*"Dir": "\(.*\)",*$/\1/p') ||
        missing "Go cannot download it, see $log"
    rm -rf "$source"
    cp -R "$from" "$source"
    chmod -R u+w "$source"

    # The module lacks this file, which each release generates, and the program does not start without it.
    echo "$ferretdb" >"$source/build/version/version.txt"
    # It answers `done: false` to the message that completes a login by SCRAM, and expects an empty one, as
    # MongoDB did before 4.4. The Rust driver requests `skipEmptyExchange`, and treats `false` as a failure.
    local file=$source/internal/handler/msg_saslcontinue.go
    sed -i 's|"done", valid, // for compatibility.*|"done", conv.Valid(),|' "$file"
    if [ "$(grep -c '"done", conv.Valid(),' "$file")" != 1 ]; then
        echo "$file is not the expected version, so it was not patched" >"$log"
        failed
    fi

    # Without PostgreSQL. Its SQLite is in Go, and needs no C compiler.
    local tags=ferretdb_no_postgresql
    export CGO_ENABLED=0
    # Downloads only the dependencies of the build.
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
# One at a time, because two would build in the same directory.
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
