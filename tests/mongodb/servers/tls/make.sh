#!/usr/bin/env bash
# Makes the certificates and keys in this directory, with OpenSSL 3. They are for tests and secure nothing. Run it by
# hand, only to replace them: they are valid from 2020, because clocks may be wrong, and for 100 years.
#
#   ca.pem          the CA that signed server.pem and client.pem (its key is not kept)
#   other-ca.pem    a CA that signed none of them
#   server.pem, server-key.pem    the server at localhost and 127.0.0.1
#   client.pem      a client's certificate and its key in one file, as tlsCertificateKeyFile requires
set -euo pipefail
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/config" <<EXTENSIONS
[ca]
default_ca = made_here
[made_here]
database = $work/database
new_certs_dir = $work
rand_serial = yes
unique_subject = no
default_md = sha256
default_startdate = 20200101000000Z
default_enddate = 21200101000000Z
policy = any
[any]
commonName = supplied
[authority]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign
[server]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = DNS:localhost,IP:127.0.0.1
[client]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = clientAuth
EXTENSIONS
: >"$work/database"

# KEY COMMON-NAME EXTENSIONS RESULT BY...: makes a key, and a certificate
made() {
    local key=$1 name=$2 extensions=$3 result=$4
    shift 4
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$key"
    openssl req -new -key "$key" -subj "/CN=$name" -out "$work/request"
    openssl ca -config "$work/config" -batch -notext -in "$work/request" -extensions "$extensions" -out "$result" "$@"
}
by_ca=(-cert ca.pem -keyfile "$work/ca.key")

made "$work/ca.key" "ringreel test CA" authority ca.pem -selfsign -keyfile "$work/ca.key"
made "$work/other.key" "ringreel test CA that signed nothing" authority other-ca.pem -selfsign -keyfile "$work/other.key"
made server-key.pem localhost server server.pem "${by_ca[@]}"
made "$work/client.key" "ringreel test client" client client.pem "${by_ca[@]}"
cat "$work/client.key" >>client.pem
chmod 644 ./*.pem
