#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace gloo {
class Context;
namespace transport {
class UnboundBuffer;
}  // namespace transport
}  // namespace gloo

namespace train::engine {

/// Notices when a rank of a link leaves, in order or not.
///
/// Gloo tells nobody but pending operations that a connection broke. So a receive is pending from
/// each peer that only its farewell answers, and a thread waits for these: a death is noticed at
/// once, whatever else the link waits for, and costs nothing until then. A rank that says farewell
/// has done all it had to.
///
/// Threading: one owner; has_left() and loss() from any thread.
class GlooWatch {
 public:
  /// Is called on the thread of the watch for every farewell, and once for a loss, when has_left()
  /// or lost() shows it already.
  using Changed = std::function<void(bool lost)>;

  /// Posts the receives and starts the thread. Throws what Gloo throws if a connection is broken.
  GlooWatch(gloo::Context& context, Changed changed);
  GlooWatch(const GlooWatch&) = delete;
  GlooWatch& operator=(const GlooWatch&) = delete;
  ~GlooWatch();

  /// Ends the thread: `changed` is called no more.
  void stop();

  /// The peer has said farewell.
  [[nodiscard]] bool has_left(int peer) const;
  /// A connection broke without a farewell.
  [[nodiscard]] bool lost() const { return lost_.load(std::memory_order_acquire); }
  /// Gloo's words for it; "" if none did.
  [[nodiscard]] std::string loss() const;

  /// Tells all peers that this rank leaves in order. Blocks for 50 ms at most.
  void say_farewell();

 private:
  void loop();

  int rank_;
  Changed changed_;
  std::vector<std::uint8_t> farewells_;  ///< By rank: 1 when it has left.
  std::uint8_t farewell_ = 1;            ///< What is sent.
  std::atomic<bool> ending_{false};
  std::atomic<bool> lost_{false};
  mutable std::mutex mutex_;
  std::string loss_;
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;  ///< After the memory it stands for.
  std::thread thread_;
};

}  // namespace train::engine
