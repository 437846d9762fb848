#!/usr/bin/env bash
# Builds the static libraries that Debian does not offer, or not for shared libraries (as the Python module is), or only with
# dependencies that exist only as shared libraries, from the distribution's own sources, into build/static-libraries: lib/*.a, and `sources` with a line "LIBRARY SOURCE VERSION" for each.
# They fit the headers that Quire is compiled with: within a release of Debian, only fixes change. Does nothing if that was done
# before; `rm -r build/static-libraries` takes later fixes in.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
jobs=${QUIRE_JOBS:-$(nproc)}
folder=$PWD/build/static-libraries
if [[ $folder/sources -nt ${BASH_SOURCE[0]} ]]; then exit; fi
rm -rf "$folder"
mkdir -p "$folder"/{lib,log,apt/lists/partial,apt/cache/archives/partial,source}

# apt with the sources of the packages that the system's own lists name, and lists of its own: the system's stay as they are.
sed -n 's/^deb /deb-src /p' /etc/apt/sources.list 2>/dev/null >"$folder/apt/old.list" || true
for file in /etc/apt/sources.list.d/{debian,ubuntu}.sources; do
  if [[ -e $file ]]; then sed 's/^Types:.*/Types: deb-src/' "$file" >"$folder/apt/$(basename "$file")"; fi
done
apt=(-qq -o "Dir::Etc::sourcelist=$folder/apt/old.list" -o "Dir::Etc::sourceparts=$folder/apt" -o "Dir::State::lists=$folder/apt/lists"
  -o "Dir::Cache=$folder/apt/cache" -o APT::Sandbox::User=root)
apt-get "${apt[@]}" update
(cd "$folder/source" && apt-get "${apt[@]}" source fmtlib spdlog prometheus-cpp curl hwloc zeromq3 ncurses libedit) >"$folder/log/sources" 2>&1 || {
  cat "$folder/log/sources" >&2
  echo "static_libraries.sh: the sources of Debian's packages cannot be had (see above)" >&2
  exit 1
}

# logged LIBRARY COMMAND...: shows the output of a command only if it fails.
logged() {
  local log=$folder/log/$1
  "${@:2}" >>"$log" 2>&1 || { tail -n 30 "$log" >&2; echo "static_libraries.sh: $1 could not be built (full log: $log)" >&2; exit 1; }
}

# Without a compiler cache, which gives the compiler other paths, and with them __FILE__.
export CFLAGS="-O2 -fPIC -ffile-prefix-map=$folder/source/=" CXXFLAGS="-O2 -fPIC -ffile-prefix-map=$folder/source/="

# with_cmake LIBRARY SOURCE-FOLDER FLAGS: builds it, and keeps its archive.
with_cmake() {
  local library=$1 source
  source=$(echo "$folder/source/$2"-*/)
  logged "$library" cmake -S "$source" -B "$folder/source/build-$library" -G Ninja -DCMAKE_BUILD_TYPE=None -DBUILD_SHARED_LIBS=OFF \
    "${@:3}"
  logged "$library" ninja -C "$folder/source/build-$library" -j "$jobs"
  find "$folder/source/build-$library" -name "lib$library.a" -exec cp {} "$folder/lib/" \;
  keep "$library" "$2"
}

# keep LIBRARY SOURCE: checks that its archive has been made, and notes where it is from.
keep() {
  local description
  description=$(echo "$folder/source/$2"_*.dsc)
  [[ -e $folder/lib/lib$1.a ]] || { echo "static_libraries.sh: $2 has built no lib$1.a" >&2; exit 1; }
  echo "$1 $2 $(sed -n 's/^Version: //p' "$description" | head -n 1)" >>"$folder/sources.new"
}

with_cmake fmt fmtlib -DFMT_TEST=OFF -DFMT_DOC=OFF
with_cmake spdlog spdlog -DSPDLOG_FMT_EXTERNAL=ON -DSPDLOG_BUILD_EXAMPLE=OFF
with_cmake prometheus-cpp-core prometheus-cpp -DENABLE_PUSH=OFF -DENABLE_PULL=OFF -DENABLE_TESTING=OFF
# Only what hub/ uses: HTTP/1.1 with TLS. Debian's libcurl.a needs Kerberos, LDAP and more.
with_cmake curl curl -DHTTP_ONLY=ON -DBUILD_CURL_EXE=OFF -DBUILD_TESTING=OFF -DCURL_USE_OPENSSL=ON -DCURL_USE_LIBSSH2=OFF -DUSE_LIBIDN2=OFF \
  -DUSE_NGHTTP2=OFF -DCURL_BROTLI=OFF -DCURL_ZSTD=OFF -DCURL_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt -DCURL_CA_PATH=none
# Only ZeroMQ's sockets over TCP and paths. Debian's libzmq.a needs Kerberos, PGM, NORM and libsodium.
with_cmake zmq zeromq3 -DBUILD_SHARED=OFF -DBUILD_STATIC=ON -DBUILD_TESTS=OFF -DWITH_DOCS=OFF -DENABLE_DRAFTS=OFF \
  -DENABLE_CURVE=OFF -DWITH_LIBSODIUM=OFF -DENABLE_WS=OFF -DWITH_LIBBSD=OFF
# Debian's libhwloc.a needs libudev, which describes disks and network cards. Quire asks for cores, caches and NUMA nodes.
source=$(echo "$folder/source/hwloc"-*/)
(cd "$source" && logged hwloc ./configure --enable-static --disable-shared --with-pic --disable-libudev --disable-libxml2 --disable-cairo \
  --disable-pci --disable-opencl --disable-cuda --disable-nvml --disable-rsmi --disable-levelzero --disable-gl --disable-plugin-dlopen --disable-plugin-ltdl)
logged hwloc make -C "$source/hwloc" -j "$jobs"
cp "$source"/hwloc/.libs/libhwloc.a "$folder/lib/"
keep hwloc hwloc
# What libedit needs of ncurses. Descriptions of terminals lie where Debian, and others, have them.
source=$(echo "$folder/source/ncurses"-*/)
(cd "$source" && logged tinfo ./configure --with-termlib=tinfo --enable-widec --without-shared --without-debug --without-cxx --without-cxx-binding \
  --without-ada --without-manpages --without-progs --without-tests --disable-db-install --with-default-terminfo-dir=/usr/share/terminfo \
  --with-terminfo-dirs=/etc/terminfo:/lib/terminfo:/usr/share/terminfo)
logged tinfo make -C "$source" -j "$jobs" libs
cp "$source/lib/libtinfo.a" "$folder/lib/"
keep tinfo ncurses
source=$(echo "$folder/source/libedit"-*/)
(cd "$source" && logged edit ./configure --enable-static --disable-shared --with-pic --disable-examples)
logged edit make -C "$source/src" -j "$jobs"
cp "$source/src/.libs/libedit.a" "$folder/lib/"
keep edit libedit

rm -rf "$folder"/{source,apt}
mv "$folder/sources.new" "$folder/sources"
