#include "configs/board_address.hpp"
#include "configs/rules/rules.hpp"

namespace train::configs {

void check_status(const RunConfig& config, Rules& rules) {
  const std::string& listen = config.status.listen;
  rules.refuse_if(!listen.empty() && !parse_board_address(listen), "status.listen",
                  "{}, or empty for no board, not \"{}\"", kBoardAddressRule, listen);
}

}  // namespace train::configs
