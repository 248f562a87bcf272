#pragma once

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

// Members of JSON's class, whose code is in test_main, and conversions and comparisons of the types
// that occur in nearly every test: the compiler works them out here, where the headers of all tests
// are parsed once. Nothing is evaluated.
extern template class nlohmann::basic_json<>;

namespace train::test::parsed_once {

using Json = nlohmann::json;

template <class T>
using Comparison = decltype(std::declval<const Json&>() == std::declval<T>());
template <class T>
using Conversion = decltype(std::declval<const Json&>().get<T>());
template <class T>
using Assignment = decltype(static_cast<T>(std::declval<const Json&>()));
template <class... Of>
struct Types {};

using Compared =
    Types<Comparison<int>, Comparison<double>, Comparison<bool>, Comparison<const char (&)[2]>,
          Comparison<std::string>, Comparison<const Json&>>;
using Converted =
    Types<Conversion<int>, Conversion<std::int64_t>, Conversion<double>, Conversion<std::string>,
          Conversion<std::vector<std::int64_t>>, Conversion<std::vector<double>>>;
using Assigned = Types<Assignment<std::int64_t>, Assignment<double>, Assignment<std::string>>;
using Made = Types<decltype(Json(1)), decltype(Json(std::int64_t{1})), decltype(Json(1.0)),
                   decltype(Json(true)), decltype(Json("")), decltype(Json(std::string())),
                   decltype(Json(std::vector<std::string>())),
                   decltype(Json({{"", 1}, {"", ""}, {"", std::string()}}))>;
using Found =
    Types<decltype(std::declval<Json&>()[""]), decltype(std::declval<const Json&>()[""]),
          decltype(std::declval<const Json&>()[0]), decltype(std::declval<const Json&>().at("")),
          decltype(std::declval<const Json&>().contains("")),
          decltype(std::declval<const Json&>().value("", 0)),
          decltype(std::declval<const Json&>().value("", "")),
          decltype(std::declval<const Json&>().dump())>;
using Parsed = Types<decltype(Json::parse(std::declval<const std::string&>())),
                     decltype(Json::parse(std::declval<std::ifstream&>()))>;

}  // namespace train::test::parsed_once
