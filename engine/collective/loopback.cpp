#include <fmt/format.h>

#include <mutex>
#include <optional>

#include "engine/collective/collective.hpp"
#include "engine/collective/transfer.hpp"

namespace train::engine {
namespace {

class Loopback final : public Collectives {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int world_size() const override { return 1; }

  void exchange(const CollectiveIdentity& identity, Transfer transfer, Done done) override {
    check_transfer(transfer, 0, 1);
    if (const std::optional<std::string> reason = cancelled()) {
      done(failure(fmt::format("{}: cancelled: {}", to_string(identity), *reason)));
      return;
    }
    copy_own(transfer, 0);
    done({});
  }

  void cancel(const std::string& reason) override {
    const std::lock_guard lock(mutex_);
    if (!cancelled_) {
      cancelled_ = reason;
    }
  }

 private:
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
