#pragma once

#include <algorithm>
#include <array>
#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/detail/tuple_vals.hpp>
#include <caf/detail/type_erased_value_impl.hpp>
#include <caf/meta/type_name.hpp>
#include <caf/type_erased_tuple.hpp>
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
#define TRAIN_FIELDS(count, ...)     \
  if constexpr (kFields == count) {  \
    auto& [__VA_ARGS__] = aggregate; \
    return visit(__VA_ARGS__);       \
  }
  if constexpr (kFields == 0) {
    return visit();
  }
  TRAIN_FIELDS(1, a)
  TRAIN_FIELDS(2, a, b)
  TRAIN_FIELDS(3, a, b, c)
  TRAIN_FIELDS(4, a, b, c, d)
  TRAIN_FIELDS(5, a, b, c, d, e)
  TRAIN_FIELDS(6, a, b, c, d, e, f)
  TRAIN_FIELDS(7, a, b, c, d, e, f, g)
  TRAIN_FIELDS(8, a, b, c, d, e, f, g, h)
  TRAIN_FIELDS(9, a, b, c, d, e, f, g, h, i)
  TRAIN_FIELDS(10, a, b, c, d, e, f, g, h, i, j)
  TRAIN_FIELDS(11, a, b, c, d, e, f, g, h, i, j, k)
  TRAIN_FIELDS(12, a, b, c, d, e, f, g, h, i, j, k, l)
  TRAIN_FIELDS(13, a, b, c, d, e, f, g, h, i, j, k, l, m)
  TRAIN_FIELDS(14, a, b, c, d, e, f, g, h, i, j, k, l, m, n)
  TRAIN_FIELDS(15, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o)
  TRAIN_FIELDS(16, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)
  TRAIN_FIELDS(17, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q)
#undef TRAIN_FIELDS
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

// Functions of a message that the framework calls virtually are compiled once, in
// message_instances.cpp, and not in every unit that sends the message, where they would be half of
// the compiler's time. Each message has one line at the end of its header, outside of all
// namespaces.
#ifndef TRAIN_INSTANCES
#define TRAIN_INSTANCES extern template
#endif

#define TRAIN_MESSAGE_INSTANCES(Message)                                                  \
  TRAIN_INSTANCES class caf::detail::tuple_vals_impl<caf::detail::message_data, Message>; \
  TRAIN_INSTANCES class caf::detail::tuple_vals_impl<caf::type_erased_tuple, Message>;    \
  TRAIN_INSTANCES class caf::detail::tuple_vals<Message>;                                 \
  TRAIN_INSTANCES class caf::detail::type_erased_value_impl<Message>;

/// A message that may cross processes.
#define TRAIN_CROSSING_MESSAGE(Message) TRAIN_MESSAGE_INSTANCES(Message)

/// A message that stays in its process: the framework is told that it cannot be written.
#define TRAIN_LOCAL_MESSAGE(Message)     \
  CAF_ALLOW_UNSAFE_MESSAGE_TYPE(Message) \
  TRAIN_MESSAGE_INSTANCES(Message)
