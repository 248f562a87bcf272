#include "run/recovery/generations.hpp"

#include <catch2/catch.hpp>

namespace train::run {

TEST_CASE("respawns: so many in a row without progress, then fewer ranks, then again as many",
          "[run][respawns][P4]") {
  Respawns respawns({.rank_loss = "respawn", .max_respawns = 2}, 10);
  CHECK(respawns.allow(10));
  CHECK(respawns.allow(10));
  CHECK_FALSE(respawns.allow(10));
  CHECK(respawns.allow(10));  // with fewer ranks
  CHECK(respawns.allow(20));  // progress: the count begins anew
  CHECK(respawns.allow(20));
  CHECK_FALSE(respawns.allow(20));
  CHECK_FALSE(Respawns({.rank_loss = "respawn", .max_respawns = 0}, 0).allow(0));
}

TEST_CASE("respawns: only ranks that are processes are started again", "[run][respawns]") {
  configs::RunConfig config;
  config.parallel.ranks = 2;
  CHECK(can_respawn(config, false));
  config.parallel.nodes = 2;
  CHECK(can_respawn(config, false));
  config.parallel.nodes = 1;
  config.parallel.transport = "inproc";
  CHECK_FALSE(can_respawn(config, true));
  config = {};
  CHECK_FALSE(can_respawn(config, false));  // one rank, in the launcher itself
  CHECK(can_respawn(config, true));         // of several nodes it is the one that is left
  config.parallel.transport = "inproc";
  CHECK_FALSE(can_respawn(config, true));
  config = {};
  config.parallel.ranks = 2;
  config.recovery.rank_loss = "stop";
  CHECK_FALSE(can_respawn(config, false));
}

}  // namespace train::run
