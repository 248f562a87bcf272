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
#include <type_traits>
#include <utility>
#include <vector>

#include "storage/files/atomic_file.hpp"
#include "storage/files/private_directory.hpp"

namespace train::actors {
namespace {

namespace fs = std::filesystem;

constexpr long kValidBefore_s = -24L * 3600;  // Clocks of nodes may differ.
constexpr mode_t kOthers = 077;

template <auto Free>
// Deleter that calls a given function.
using FreedBy = std::integral_constant<decltype(Free), Free>;
using Key = std::unique_ptr<EVP_PKEY, FreedBy<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, FreedBy<X509_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, FreedBy<X509_EXTENSION_free>>;
using Memory = std::unique_ptr<BIO, FreedBy<BIO_free_all>>;

/// Failures here are lack of memory or randomness, which no user can cause or fix.
void require(bool worked, const char* what) {
  const char* const why = ERR_reason_error_string(ERR_peek_last_error());
  TRAIN_CHECK(worked, "the certificates' {}: {}", what, why == nullptr ? "unknown" : why);
}

using Extensions = std::vector<std::pair<int, const char*>>;  // By number.

/// Key with its certificate.
struct Identified {
  Key key = Key(EVP_EC_gen("P-256"));
  Certificate certificate = Certificate(X509_new());
};

/// `issuer` null: self-signed.
Identified make_end(const char* name, std::chrono::seconds life, const Extensions& extensions,
                    const Identified* issuer) {
  Identified end;
  X509* const made = end.certificate.get();
  require(end.key != nullptr && made != nullptr, "key");
  require(X509_set_version(made, X509_VERSION_3) == 1, "version");
  std::uint64_t serial = 0;
  require(RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof(serial)) == 1 &&
              ASN1_INTEGER_set_uint64(X509_get_serialNumber(made), serial >> 1U) == 1,
          "serial");
  require(X509_gmtime_adj(X509_getm_notBefore(made), kValidBefore_s) != nullptr &&
              X509_gmtime_adj(X509_getm_notAfter(made), life.count()) != nullptr,
          "dates");
  const Identified& signer = issuer != nullptr ? *issuer : end;
  require(
      X509_NAME_add_entry_by_txt(X509_get_subject_name(made), "CN", MBSTRING_ASC,
                                 reinterpret_cast<const unsigned char*>(name), -1, -1, 0) == 1 &&
          X509_set_issuer_name(made, X509_get_subject_name(signer.certificate.get())) == 1,
      "names");
  require(X509_set_pubkey(made, end.key.get()) == 1, "key");
  X509V3_CTX context;
  X509V3_set_ctx(&context, signer.certificate.get(), made, nullptr, nullptr, 0);
  for (const auto& [kind, value] : extensions) {
    const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, kind, value));
    require(extension != nullptr && X509_add_ext(made, extension.get(), -1) == 1, "extensions");
  }
  require(X509_sign(made, signer.key.get(), EVP_sha256()) > 0, "signature");
  return end;
}

// A worker's key cannot impersonate the head: each certificate serves one end only.
Extensions use_as(const char* usage) {
  return {{NID_basic_constraints, "critical,CA:FALSE"},
          {NID_key_usage, "critical,digitalSignature"},
          {NID_ext_key_usage, usage}};
}

/// `key`: also write the key.
Status write_end(const fs::path& file, const Identified& end, bool key) {
  const Memory memory(BIO_new(BIO_s_mem()));
  require(memory != nullptr && PEM_write_bio_X509(memory.get(), end.certificate.get()) == 1 &&
              (!key || PEM_write_bio_PrivateKey(memory.get(), end.key.get(), nullptr, nullptr, 0,
                                                nullptr, nullptr) == 1),
          "text");
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &bytes);
  return storage::write_private_file(file, {bytes, static_cast<std::size_t>(size)});
}

CredentialFiles files_in(const fs::path& directory) {
  return {.authority = directory / "authority.pem",
          .head = directory / "head.pem",
          .worker = directory / "worker.pem"};
}

}  // namespace

Result<CredentialFiles> make_credentials(const fs::path& directory, const CredentialLife& life) {
  TRAIN_RETURN_IF_ERROR(storage::make_private_directory(directory));
  const Identified authority = make_end("actortrain run", CredentialLife::kLong,
                                        {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                                         {NID_key_usage, "critical,keyCertSign"}},
                                        nullptr);
  const Identified head = make_end("head", life.head, use_as("serverAuth"), &authority);
  const Identified worker = make_end("worker", life.worker, use_as("clientAuth"), &authority);
  CredentialFiles files = files_in(directory);
  TRAIN_RETURN_IF_ERROR(write_end(files.head, head, /*key=*/true));
  TRAIN_RETURN_IF_ERROR(write_end(files.worker, worker, /*key=*/true));
  TRAIN_RETURN_IF_ERROR(write_end(files.authority, authority, /*key=*/false));
  return files;
}

Result<CredentialFiles> load_credentials(const fs::path& directory) {
  CredentialFiles files = files_in(directory);
  for (const fs::path* path : {&files.authority, &files.head, &files.worker}) {
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
