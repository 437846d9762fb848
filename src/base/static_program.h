// The program that ./dev package links statically, and the systems that it runs on: each has a C library of its own, and keeps its
// files in other places than the system that the program was built on.
#pragma once

namespace quire {

// Whether the C library is part of this program. Such a program must not open shared libraries: they need the system's C library.
bool is_static_program();

// In a static program, replaces what it would look up in shared libraries or in Debian's places alone; in others it does nothing.
// Call it first: it sets environment variables, which no other thread may read meanwhile.
//  - Hosts come from /etc/hosts and DNS, users from /etc/passwd. Other sources of nsswitch.conf are shared libraries.
//  - LC_ALL is C.UTF-8, which the C library contains: locales of the system are data for the system's C library.
//  - find_certificates().
void adapt_static_program();

// SSL_CERT_FILE names the system's certificates, unless it or SSL_CERT_DIR is set: for code that has Debian's OpenSSL inside.
void find_certificates();

}  // namespace quire
