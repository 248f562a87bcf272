#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <cstdint>
#include <string>
#include <utility>

namespace train::test {

/// Client that sends arbitrary bytes, valid HTTP or not. Blocks.
class HttpClient {
 public:
  /// Connects to a URL such as "http://127.0.0.1:41233/"; from an address of this machine, or any.
  explicit HttpClient(const std::string& url, const std::string& from = "") : socket_(context_) {
    namespace asio = boost::asio;
    if (!from.empty()) {
      const asio::ip::tcp::endpoint own(asio::ip::make_address(from), 0);
      socket_.open(own.protocol());
      socket_.bind(own);
    }
    const std::size_t host = url.find("//") + 2;
    const std::size_t colon = url.rfind(':');
    socket_.connect({asio::ip::make_address(url.substr(host, colon - host)),
                     static_cast<std::uint16_t>(std::stoi(url.substr(colon + 1)))});
  }

  /// False: the peer has closed.
  bool send(const std::string& bytes) {
    boost::system::error_code error;
    boost::asio::write(socket_, boost::asio::buffer(bytes), error);
    return !error;
  }
  /// Reads until the peer closes, or until `end` has arrived.
  std::string receive(const std::string& end = "") {
    std::string text;
    char piece[4096];
    boost::system::error_code error;
    while (!error && (end.empty() || text.find(end) == std::string::npos)) {
      text.append(piece, socket_.read_some(boost::asio::buffer(piece), error));
    }
    return text;
  }

  struct Answer {
    int status = 0;
    std::string head, body;
  };
  static Answer get(const std::string& url, const std::string& target,
                    const std::string& more = "") {
    HttpClient client(url);
    client.send("GET " + target + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + more +
                "\r\n");
    const std::string text = client.receive();
    const std::size_t head = text.find("\r\n\r\n");
    if (head == std::string::npos) {
      return {};
    }
    return {std::stoi(text.substr(9, 3)), text.substr(0, head), text.substr(head + 4)};
  }

 private:
  boost::asio::io_context context_;
  boost::asio::ip::tcp::socket socket_;
};

}  // namespace train::test
