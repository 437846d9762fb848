#include "base/static_program.h"

#include <link.h>
#include <nss.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <span>

namespace quire {
namespace {

// Where distributions keep the certificates that they trust; the same places as in Go's crypto/x509/root_linux.go.
constexpr const char* kCertificateFiles[] = {
    "/etc/ssl/certs/ca-certificates.crt",                 // Debian, Ubuntu, Arch, Gentoo, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",                   // Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",                             // openSUSE
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  // RHEL 7
    "/etc/ssl/cert.pem",                                  // Alpine
};

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value;
}

}  // namespace

bool is_static_program() {
  bool has_loader = false;
  ::dl_iterate_phdr(
      [](dl_phdr_info* program, size_t, void* found) {
        *static_cast<bool*>(found) = std::ranges::any_of(std::span(program->dlpi_phdr, program->dlpi_phnum),
                                                         [](const auto& header) { return header.p_type == PT_INTERP; });
        return 1;  // the first object is the program itself
      },
      &has_loader);
  return !has_loader;
}

void adapt_static_program() {
  if (!is_static_program()) return;
  ::__nss_configure_lookup("hosts", "files dns");
  ::__nss_configure_lookup("passwd", "files");
  ::setenv("LC_ALL", "C.UTF-8", 1);
  find_certificates();
}

void find_certificates() {
  if (is_set("SSL_CERT_FILE") || is_set("SSL_CERT_DIR")) return;
  for (const char* file : kCertificateFiles) {
    if (::access(file, R_OK) != 0) continue;
    ::setenv("SSL_CERT_FILE", file, 1);
    return;
  }
}

}  // namespace quire
