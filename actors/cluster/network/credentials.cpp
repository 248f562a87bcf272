#include "actors/cluster/network/credentials.hpp"

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "storage/files/atomic_file.hpp"

namespace train::actors {
namespace {

namespace fs = std::filesystem;

constexpr long kValidBefore_s = -24L * 3600;  // clocks of nodes differ a little
constexpr mode_t kOthers = 077;

template <auto Free>
struct FreedBy {
  template <class T>
  void operator()(T* object) const noexcept {
    Free(object);
  }
};
using Key = std::unique_ptr<EVP_PKEY, FreedBy<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, FreedBy<X509_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, FreedBy<X509_EXTENSION_free>>;
using Memory = std::unique_ptr<BIO, FreedBy<BIO_free_all>>;

/// What goes wrong here is lack of memory or of randomness: no user can cause or fix it.
void require(bool worked, const char* what) {
  TRAIN_CHECK(worked, "the certificates' {}: {}", what,
              ERR_reason_error_string(ERR_peek_last_error()) == nullptr
                  ? "unknown"
                  : ERR_reason_error_string(ERR_peek_last_error()));
}

struct Purpose {
  std::string name;
  std::vector<std::pair<int, const char*>> extensions;
};

const Purpose& authority_purpose() {
  static const Purpose kPurpose{"actortrain run",
                                {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                                 {NID_key_usage, "critical,keyCertSign"}}};
  return kPurpose;
}

// The head cannot be played with a worker's key: each certificate serves one end only.
Purpose end_purpose(const char* name, const char* usage) {
  return {name,
          {{NID_basic_constraints, "critical,CA:FALSE"},
           {NID_key_usage, "critical,digitalSignature"},
           {NID_ext_key_usage, usage}}};
}

Key make_key() {
  Key key(EVP_EC_gen("P-256"));
  require(key != nullptr, "key");
  return key;
}

void set_serial(X509* certificate) {
  std::uint64_t serial = 0;
  require(RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof(serial)) == 1, "serial");
  require(ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), serial >> 1U) == 1, "serial");
}

/// `issuer` null: signed by its own key.
Certificate make_certificate(const Purpose& purpose, std::chrono::seconds life, const Key& key,
                             X509* issuer, const Key& issuer_key) {
  Certificate certificate(X509_new());
  require(certificate != nullptr, "memory");
  require(X509_set_version(certificate.get(), X509_VERSION_3) == 1, "version");
  set_serial(certificate.get());
  require(X509_gmtime_adj(X509_getm_notBefore(certificate.get()), kValidBefore_s) != nullptr &&
              X509_gmtime_adj(X509_getm_notAfter(certificate.get()), life.count()) != nullptr,
          "dates");
  X509_NAME* name = X509_get_subject_name(certificate.get());
  require(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                                     reinterpret_cast<const unsigned char*>(purpose.name.c_str()),
                                     -1, -1, 0) == 1,
          "name");
  X509* signer = issuer != nullptr ? issuer : certificate.get();
  require(X509_set_issuer_name(certificate.get(), X509_get_subject_name(signer)) == 1, "issuer");
  require(X509_set_pubkey(certificate.get(), key.get()) == 1, "key");
  X509V3_CTX context;
  X509V3_set_ctx(&context, signer, certificate.get(), nullptr, nullptr, 0);
  for (const auto& [kind, value] : purpose.extensions) {
    const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, kind, value));
    require(extension != nullptr && X509_add_ext(certificate.get(), extension.get(), -1) == 1,
            "extensions");
  }
  require(X509_sign(certificate.get(), issuer_key.get(), EVP_sha256()) > 0, "signature");
  return certificate;
}

template <class Write>
std::string as_text(Write write) {
  const Memory memory(BIO_new(BIO_s_mem()));
  require(memory != nullptr && write(memory.get()) == 1, "text");
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &bytes);
  return {bytes, static_cast<std::size_t>(size)};
}

std::string text_of(const Certificate& certificate) {
  return as_text([&](BIO* out) { return PEM_write_bio_X509(out, certificate.get()); });
}

std::string text_of(const Key& key) {
  return as_text([&](BIO* out) {
    return PEM_write_bio_PrivateKey(out, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
}

CredentialFiles files_in(const fs::path& directory) {
  return {.authority = directory / "authority.pem",
          .head_certificate = directory / "head.pem",
          .head_key = directory / "head.key",
          .worker_certificate = directory / "worker.pem",
          .worker_key = directory / "worker.key"};
}

/// A key and a certificate for it.
struct KeyAndCertificate {
  Key key;
  Certificate certificate;
};

KeyAndCertificate make_end(const Purpose& purpose, std::chrono::seconds life,
                           const KeyAndCertificate& authority) {
  Key key = make_key();
  Certificate certificate =
      make_certificate(purpose, life, key, authority.certificate.get(), authority.key);
  return {std::move(key), std::move(certificate)};
}

}  // namespace

Result<CredentialFiles> make_credentials(const fs::path& directory, const CredentialLife& life) {
  TRAIN_RETURN_IF_ERROR(storage::make_private_directory(directory));
  KeyAndCertificate authority;
  authority.key = make_key();
  authority.certificate = make_certificate(authority_purpose(), CredentialLife::kLong,
                                           authority.key, nullptr, authority.key);
  const KeyAndCertificate head = make_end(end_purpose("head", "serverAuth"), life.head, authority);
  const KeyAndCertificate worker =
      make_end(end_purpose("worker", "clientAuth"), life.worker, authority);
  CredentialFiles files = files_in(directory);
  TRAIN_RETURN_IF_ERROR(storage::write_private_file(files.head_key, text_of(head.key)));
  TRAIN_RETURN_IF_ERROR(
      storage::write_private_file(files.head_certificate, text_of(head.certificate)));
  TRAIN_RETURN_IF_ERROR(storage::write_private_file(files.worker_key, text_of(worker.key)));
  TRAIN_RETURN_IF_ERROR(
      storage::write_private_file(files.worker_certificate, text_of(worker.certificate)));
  TRAIN_RETURN_IF_ERROR(
      storage::write_private_file(files.authority, text_of(authority.certificate)));
  return files;
}

Result<CredentialFiles> load_credentials(const fs::path& directory) {
  CredentialFiles files = files_in(directory);
  for (const fs::path* path : {&files.authority, &files.head_certificate, &files.head_key,
                               &files.worker_certificate, &files.worker_key}) {
    struct stat facts {};
    if (::stat(path->c_str(), &facts) != 0) {
      return storage::os_error(storage::Access::read, *path, errno);
    }
    if ((facts.st_mode & kOthers) != 0) {
      return user_error(fmt::format("{} can be read by others (mode {:o}); chmod 600 it",
                                    path->string(), facts.st_mode & 07777U));
    }
  }
  return files;
}

}  // namespace train::actors
