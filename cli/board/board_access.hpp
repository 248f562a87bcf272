#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "configs/board_address.hpp"

namespace train::cli {

/// configs::parse_board_address(). Errors (user), which begin with `name`: malformed.
[[nodiscard]] Result<configs::BoardAddress> parse_board_address(std::string_view text,
                                                                std::string_view name);

/// Origins whose pages may show the board in a frame, as a Content-Security-Policy lists them:
/// "http://localhost:* https://hub.example.org:8888 vscode-webview:", with one blank between them;
/// "" for none. Errors (user), which begin with `name`: a word is no scheme, or no scheme, host and
/// port.
[[nodiscard]] Result<std::string> parse_frame_ancestors(std::string_view text,
                                                        std::string_view name);

/// Token in a file: its first line, of 16 or more letters, digits and "-_.~". Errors (user):
/// unreadable; readable by other users than its owner; too short, or with other characters. Blocks.
[[nodiscard]] Result<std::string> read_board_token(const std::filesystem::path& file);

/// Identification of a request's sender.
struct BoardCaller {
  std::string_view host = {};           ///< The header Host.
  std::string_view authorization = {};  ///< "Bearer ..."; empty: missing.
  std::string_view cookie = {};
  std::string_view query_token = {};  ///< token= in the target; empty: missing.
};

/// Access check. Threading: immutable.
class BoardAccess {
 public:
  /// Without a token: grants access to any request by a numeric address or localhost, so that no
  /// other site's page gets access through a host name that it resolves to this board.
  explicit BoardAccess(std::optional<std::string> token) : token_(std::move(token)) {}

  enum class Verdict : std::uint8_t {
    granted,
    granted_by_query,  ///< Granted; the token should move from the address to a cookie.
    refused,
  };
  [[nodiscard]] Verdict judge(const BoardCaller& caller) const;
  /// Cookie with the token, for browsers that reach this board as `host`. Browsers send a cookie to
  /// all ports of a machine, so its name contains the port: boards on one machine have separate
  /// cookies. REQUIRES: a token.
  [[nodiscard]] std::string cookie(std::string_view host) const;

 private:
  [[nodiscard]] bool is_token(std::string_view text) const;

  std::optional<std::string> token_;
};

}  // namespace train::cli
