#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

template class nlohmann::basic_json<>;  // For all tests: parsed_once.hpp.

// Prints the seed first, so that a failure can be replayed with --rng-seed. Runs started by tests
// skip the measurement of the machine's peak, which would take most of their time, and hear SIGHUP,
// though nohup has these tests ignore it.
int main(int argc, char* argv[]) {
  std::signal(SIGHUP, SIG_DFL);
  setenv("ACTORTRAIN_TEST_NO_PEAK", "1", 0);
  Catch::Session session;
  session.configData().rngSeed = static_cast<unsigned>(
      std::chrono::steady_clock::now().time_since_epoch().count() & 0x7fffffff);
  if (const int status = session.applyCommandLine(argc, argv); status != 0) {
    return status;
  }
  std::printf("seed: %u (replay: %s --rng-seed %u)\n", session.config().rngSeed(), argv[0],
              session.config().rngSeed());
  std::fflush(stdout);
  return session.run();
}
