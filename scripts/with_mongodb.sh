#!/usr/bin/env bash
# Runs a command while a MongoDB server for tests is running: scripts/with_mongodb.sh command [argument ...]
# The server is RINGREEL_TEST_MONGOURI, or one that scripts/mongodb.sh has built. RINGREEL_TEST_INDEX makes the tests
# of the ring store their index there.
set -euo pipefail
cd "$(dirname "$0")/.."

uri=${RINGREEL_TEST_MONGOURI:-}
if [ -z "$uri" ]; then
    jar=target/servers/mongo-java-server.jar
    [ -f "$jar" ] || {
        echo "$jar is missing: run scripts/mongodb.sh java" >&2
        exit 77
    }
    # It ends when its stdin is closed, that is, with this script. It prints a page for each killed client.
    coproc SERVER { exec java -Dio.netty.eventLoopThreads=1 -jar "$jar" --port 0 2>"${jar%.jar}.err"; }
    read -r _ _ address <&"${SERVER[0]}"
    uri=mongodb://$address
fi
RINGREEL_TEST_INDEX=$uri "$@"
