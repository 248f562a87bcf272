#include "engine/collective/peer_proof.hpp"

#include <openssl/ec.h>
#include <openssl/evp.h>

#include <catch2/catch.hpp>

#include "base/process/own_program.hpp"
#include "base/process/process.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/processes/script.hpp"

namespace train::engine::peer_proof_test {
namespace {

/// True if OpenSSL gives what a run needs: digests, and keys of certificates.
bool serves() {
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  ::EVP_PKEY_free(key);
  EVP_MD* const digest = ::EVP_MD_fetch(nullptr, "SHA256", nullptr);
  ::EVP_MD_free(digest);
  return key != nullptr && digest != nullptr;
}

TEST_CASE("peer_proof: OpenSSL in a process that ignores its configuration",
          "[.ignoring_openssl_of_test]") {
  ignore_openssl_configuration();
  CHECK(serves());
  CHECK(prove({}, Side::connected, {}, {}, {}) != prove({}, Side::accepted, {}, {}, {}));
}

TEST_CASE("peer_proof: OpenSSL in a process that does not", "[.configured_openssl_of_test]") {
  CHECK_FALSE(serves());
}

TEST_CASE("peer_proof: no configuration of OpenSSL keeps ranks from each other",
          "[engine][collective]") {
  const test::TempDirectory directory;
  // As on a machine that allows certified modules alone, which this program cannot load.
  test::write_bytes(directory / "openssl.cnf",
                    "openssl_conf = all\n[all]\nproviders = modules\nalg_section = kinds\n"
                    "[kinds]\ndefault_properties = fips=yes\n"
                    "[modules]\nfips = fips\n[fips]\nmodule = /none/fips.so\nactivate = 1\n");
  const test::EnvironmentVariable named("OPENSSL_CONF", (directory / "openssl.cnf").string());
  for (const char* const tag : {"[.configured_openssl_of_test]", "[.ignoring_openssl_of_test]"}) {
    auto child = Process::start({own_program_now(), tag}, {});
    REQUIRE(child.ok());
    INFO(tag);
    CHECK(child->reap().exit_code == 0);
  }
}

}  // namespace
}  // namespace train::engine::peer_proof_test
