// A folder for a test's files, removed after the test, and certificates to put into it.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace quire {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "quire-test-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string path(std::string_view name) const { return (path_ / name).string(); }
  std::string write(std::string_view name, std::string_view text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }

 private:
  std::filesystem::path path_;
};

// Writes cert.pem, self-signed for `name`, and key.pem, encrypted if there is a passphrase.
inline void write_certificate(const TemporaryFolder& folder, const std::string& name,
                              const char* passphrase = nullptr) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_NAME* subject = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1,
                             0);
  X509_set_issuer_name(certificate, subject);
  X509_sign(certificate, key, EVP_sha256());
  if (std::FILE* file = std::fopen(folder.path("cert.pem").c_str(), "w")) {
    PEM_write_X509(file, certificate);
    std::fclose(file);
  }
  if (std::FILE* file = std::fopen(folder.path("key.pem").c_str(), "w")) {
    PEM_write_PrivateKey(file, key, passphrase ? EVP_aes_128_cbc() : nullptr,
                         reinterpret_cast<const unsigned char*>(passphrase),
                         passphrase ? static_cast<int>(std::string_view(passphrase).size()) : 0, nullptr, nullptr);
    std::fclose(file);
  }
  X509_free(certificate);
  EVP_PKEY_free(key);
}

}  // namespace quire
