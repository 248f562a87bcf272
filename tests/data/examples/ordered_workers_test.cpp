#include "data/examples/ordered_workers.hpp"

#include <catch2/catch.hpp>

#include "tests/support/processes/few_threads.hpp"

namespace train::data::ordered_workers_test {

TEST_CASE("ordered workers: where a thread cannot be started, those before it end",
          "[data][ordered_workers][P2]") {
  CHECK(test::gives_up_without_threads([] { const OrderedWorkers workers(200); }));
}

}  // namespace train::data::ordered_workers_test
