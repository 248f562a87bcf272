#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <optional>

#include "engine/base/check.hpp"
#include "engine/collective/collective.hpp"

namespace train::engine {
namespace {

class Loopback final : public Collectives {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int world_size() const override { return 1; }

  void all_gather(std::span<const std::byte> send, std::span<std::byte> receive,
                  Done done) override {
    move_bytes("all_gather", send, receive, done);
  }

  void all_to_all(std::vector<std::span<const std::byte>> send,
                  std::vector<std::span<std::byte>> receive, Done done) override {
    TRAIN_CHECK(send.size() == 1 && receive.size() == 1, "{} and {} ranges in a world of one",
                send.size(), receive.size());
    move_bytes("all_to_all", send.front(), receive.front(), done);
  }

  void cancel(const std::string& reason) override {
    const std::lock_guard lock(mutex_);
    if (!cancelled_) {
      cancelled_ = reason;
    }
  }

 private:
  void move_bytes(const char* what, std::span<const std::byte> send, std::span<std::byte> receive,
                  const Done& done) {
    if (const std::optional<std::string> reason = cancelled()) {
      done(failure(fmt::format("{} was cancelled: {}", what, *reason)));
      return;
    }
    TRAIN_CHECK(send.size() == receive.size(), "{}: {} bytes into {}", what, send.size(),
                receive.size());
    if (send.data() != receive.data()) {
      std::copy(send.begin(), send.end(), receive.begin());
    }
    done({});
  }

  [[nodiscard]] std::optional<std::string> cancelled() const {
    const std::lock_guard lock(mutex_);
    return cancelled_;
  }

  mutable std::mutex mutex_;
  std::optional<std::string> cancelled_;
};

}  // namespace

std::unique_ptr<Collectives> make_loopback() { return std::make_unique<Loopback>(); }

}  // namespace train::engine
