#include "cli/board/other_users.hpp"

#include <catch2/catch.hpp>
#include <string>

namespace train::cli::other_users_test {

TEST_CASE("other users: accounts of people, and not of the system", "[board]") {
  const std::string system =
      "root:x:0:0:root:/root:/bin/bash\n"
      "daemon:x:1:1::/usr/sbin:/usr/sbin/nologin\n"
      "robot:x:1500:1500::/home/robot:/usr/sbin/nologin\n"
      "service:x:1501:1501::/home/service:/bin/false\n"
      "nobody:x:65534:65534:nobody:/nonexistent:/bin/sh\n";
  CHECK_FALSE(names_other_people(system, 1000));
  CHECK_FALSE(names_other_people(system + "me:x:1000:1000::/home/me:/bin/bash\n", 1000));
  CHECK(names_other_people(system + "me:x:1000:1000::/home/me:/bin/bash\n", 0));
  CHECK(names_other_people(system + "alice:x:1001:1001::/home/alice:/bin/zsh", 1000));
  for (const char* damaged :
       {"", "\n\n", ":::::::", "a:x", "a:x:1e9:1::/:/bin/sh", "a:x:-1:0:::"}) {
    INFO(damaged);
    CHECK_FALSE(names_other_people(damaged, 1000));
  }
}

}  // namespace train::cli::other_users_test
