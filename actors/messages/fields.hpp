#pragma once

#include <algorithm>
#include <array>
#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/meta/type_name.hpp>
#include <cstddef>
#include <string_view>
#include <type_traits>

// Reflection over the fields of plain structs, so that they need not be listed twice.
namespace train::actors {

/// Stands for a value of any type where only types matter.
struct AnyField {
  template <class Field>
  operator Field() const;  // NOLINT: on purpose
};

template <class Aggregate, class... Fields>
[[nodiscard]] consteval std::size_t field_count() {
  if constexpr (requires { Aggregate{Fields{}..., AnyField{}}; }) {
    return field_count<Aggregate, Fields..., AnyField>();
  } else {
    return sizeof...(Fields);
  }
}

/// Calls visit(first field, second field, ...), in the order of declaration. At most 17 fields.
template <class Aggregate, class Visit>
decltype(auto) with_fields(Aggregate& aggregate, const Visit& visit) {
  constexpr std::size_t kFields = field_count<std::remove_const_t<Aggregate>>();
  static_assert(kFields <= 17);
  if constexpr (kFields == 0) {
    return visit();
  } else if constexpr (kFields == 1) {
    auto& [a] = aggregate;
    return visit(a);
  } else if constexpr (kFields == 2) {
    auto& [a, b] = aggregate;
    return visit(a, b);
  } else if constexpr (kFields == 3) {
    auto& [a, b, c] = aggregate;
    return visit(a, b, c);
  } else if constexpr (kFields == 4) {
    auto& [a, b, c, d] = aggregate;
    return visit(a, b, c, d);
  } else if constexpr (kFields == 5) {
    auto& [a, b, c, d, e] = aggregate;
    return visit(a, b, c, d, e);
  } else if constexpr (kFields == 6) {
    auto& [a, b, c, d, e, f] = aggregate;
    return visit(a, b, c, d, e, f);
  } else if constexpr (kFields == 7) {
    auto& [a, b, c, d, e, f, g] = aggregate;
    return visit(a, b, c, d, e, f, g);
  } else if constexpr (kFields == 8) {
    auto& [a, b, c, d, e, f, g, h] = aggregate;
    return visit(a, b, c, d, e, f, g, h);
  } else if constexpr (kFields == 9) {
    auto& [a, b, c, d, e, f, g, h, i] = aggregate;
    return visit(a, b, c, d, e, f, g, h, i);
  } else if constexpr (kFields == 10) {
    auto& [a, b, c, d, e, f, g, h, i, j] = aggregate;
    return visit(a, b, c, d, e, f, g, h, i, j);
  } else if constexpr (kFields == 11) {
    auto& [a, b, c, d, e, f, g, h, i, j, k] = aggregate;
    return visit(a, b, c, d, e, f, g, h, i, j, k);
  } else if constexpr (kFields == 12) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l] = aggregate;
    return visit(a, b, c, d, e, f, g, h, i, j, k, l);
  } else if constexpr (kFields == 13) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = aggregate;
    return visit(a, b, c, d, e, f, g, h, i, j, k, l, m);
  } else if constexpr (kFields == 14) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = aggregate;
    return visit(a, b, c, d, e, f, g, h, i, j, k, l, m, n);
  } else if constexpr (kFields == 15) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o] = aggregate;
    return visit(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o);
  } else if constexpr (kFields == 16) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = aggregate;
    return visit(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
  } else if constexpr (kFields == 17) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q] = aggregate;
    return visit(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q);
  }
}

/// Name "TrainStep" of train::actors::TrainStep, for texts.
template <class Message>
[[nodiscard]] constexpr auto message_name() {
  constexpr std::string_view text = __PRETTY_FUNCTION__;
  constexpr std::string_view before = "Message = ";
  constexpr std::size_t type = text.find(before) + before.size();
  constexpr std::size_t end = text.find_first_of(";]", type);
  // Compilers may omit the namespace.
  constexpr std::size_t begin = std::max(type, text.rfind(':', end) + 1);
  std::array<char, end - begin + 1> name{};
  text.copy(name.data(), end - begin, begin);
  return name;
}

/// Message that may cross processes: a struct not declared unsafe for that.
template <class Message>
concept Crossing =
    std::is_aggregate_v<Message> && !caf::allowed_unsafe_message_type<Message>::value;

/// Serialises and prints such a message for the actor framework.
template <class Inspector, Crossing Message>
typename Inspector::result_type inspect(Inspector& f, Message& message) {
  static constexpr auto kName = message_name<Message>();
  return with_fields(
      message, [&f](auto&... fields) { return f(caf::meta::type_name(kName.data()), fields...); });
}

}  // namespace train::actors

namespace train::run {

/// The same for the plain structs of run/ that are messages, or parts of them.
template <class Inspector, actors::Crossing Message>
typename Inspector::result_type inspect(Inspector& f, Message& message) {
  return actors::inspect(f, message);
}

}  // namespace train::run
