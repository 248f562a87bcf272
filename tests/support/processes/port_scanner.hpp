#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/process/descriptor.hpp"
#include "tests/support/harness/hang_limit.hpp"

namespace train::test {

/// Attacker as any user of the machine: connects to every port of 127.0.0.1 at which a child of a
/// process begins to listen, at once, and stays silent until destroyed.
class PortScanner {
 public:
  explicit PortScanner(pid_t parent) : parent_(parent), thread_([this] { scan(); }) {}
  ~PortScanner() {
    ending_.store(true);
    thread_.join();
  }

  /// Number of ports it has connected to.
  [[nodiscard]] std::size_t reached() const { return reached_.load(); }

 private:
  struct Listener {
    std::uint16_t port = 0;
    std::string inode;
  };

  static std::vector<Listener> listening() {
    std::vector<Listener> found;
    std::ifstream file("/proc/net/tcp");
    std::string line;
    std::getline(file, line);  // Column names.
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::vector<std::string> fields;
      for (std::string word; words >> word;) {
        fields.push_back(word);
      }
      if (fields.size() > 9 && fields[3] == "0A" && fields[1].starts_with("0100007F:")) {
        found.push_back({static_cast<std::uint16_t>(std::stoi(fields[1].substr(9), nullptr, 16)),
                         "socket:[" + fields[9] + "]"});
      }
    }
    return found;
  }

  [[nodiscard]] std::vector<std::string> children() const {
    std::vector<std::string> children;
    std::error_code gone;
    for (std::filesystem::directory_iterator entry("/proc", gone), end; !gone && entry != end;
         entry.increment(gone)) {
      std::ifstream file(entry->path() / "stat");
      std::string words;
      std::getline(file, words);
      // The name may contain any character; the state and the parent follow it.
      std::istringstream fields(words.substr(std::min(words.rfind(')'), words.size() - 1) + 1));
      char state = 0;
      pid_t parent = -1;
      if (!words.empty() && fields >> state >> parent && parent == parent_) {
        children.push_back(entry->path());
      }
    }
    return children;
  }

  [[nodiscard]] bool is_theirs(const Listener& listener) const {
    for (const std::string& process : children()) {
      std::error_code gone;
      for (std::filesystem::directory_iterator entry(process + "/fd", gone), end;
           !gone && entry != end; entry.increment(gone)) {
        std::error_code closed;
        if (std::filesystem::read_symlink(entry->path(), closed) == listener.inode) {
          return true;
        }
      }
    }
    return false;
  }

  void scan() {
    std::set<std::string> known;
    std::vector<Descriptor> held;
    while (!ending_.load()) {
      for (const Listener& listener : listening()) {
        if (!known.insert(listener.inode).second || !is_theirs(listener)) {
          continue;
        }
        Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in address = {};
        address.sin_family = AF_INET;
        address.sin_port = htons(listener.port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) ==
            0) {
          held.push_back(std::move(socket));
          reached_.fetch_add(1);
        }
      }
      before_the_next_look();
    }
  }

  pid_t parent_;
  std::atomic<bool> ending_{false};
  std::atomic<std::size_t> reached_{0};
  std::thread thread_;
};

}  // namespace train::test
