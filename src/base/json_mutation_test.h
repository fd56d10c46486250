// JSON changed at random, for tests of what reads it.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/json.h"

namespace lockstep {

// One change at a random place: another number, another kind of value, a member or item less or more, two
// swapped.
class JsonMutation {
 public:
  // What may mean something in the files at hand.
  struct Words {
    std::vector<Json> values;
    std::vector<std::string> names;
  };
  // The words outlive it.
  JsonMutation(uint64_t seed, const Words& words) : random_(seed), words_(words) {}

  Json operator()(Json json) {
    std::vector<Json*> places;
    collect(json, places);
    Json& place = *places[below(places.size())];
    switch (below(6)) {
      case 0: {
        Json other = *places[below(places.size())];  // a copy: it may hold the place, or lie in it
        place = std::move(other);
        break;
      }
      case 1: place = interesting(); break;
      case 2:
        if (place.is_number()) {
          place = near(place);
          break;
        }
        [[fallthrough]];
      case 3: shorten(place); break;
      case 4: lengthen(place); break;
      default: place = place.is_int() ? interesting_number() : interesting(); break;
    }
    return json;
  }

 private:
  size_t below(size_t count) { return static_cast<size_t>(random_() % count); }

  static void collect(Json& json, std::vector<Json*>& places) {
    places.push_back(&json);
    // Its values can be changed in place; Json itself shows them for reading only.
    if (json.is_object())
      for (const auto& [name, value] : json.members()) collect(const_cast<Json&>(value), places);
    if (json.is_list())
      for (const Json& item : json.items()) collect(const_cast<Json&>(item), places);
  }

  Json interesting_number() {
    static const std::vector<Json> all{0,
                                       1,
                                       -1,
                                       2,
                                       3,
                                       7,
                                       255,
                                       65536,
                                       2147483647,
                                       2147483648,
                                       -2147483648LL,
                                       4294967297,
                                       INT64_MAX,
                                       INT64_MIN,
                                       0.5,
                                       -0.5,
                                       1e-300,
                                       1e300,
                                       -1e300,
                                       9007199254740993};
    return all[below(all.size())];
  }
  Json interesting() {
    return below(2) == 0 ? interesting_number() : words_.values[below(words_.values.size())];
  }
  Json near(const Json& number) {
    const double value = number.as_double();
    if (number.is_int() && std::abs(value) < 1e15)
      return number.as_int() + static_cast<int64_t>(below(5)) - 2;
    return value * (below(2) == 0 ? 2 : -1);
  }
  void shorten(Json& place) {
    if (place.is_object() && !place.members().empty()) {
      place.erase(std::string(place.members()[below(place.members().size())].first));
    } else if (place.is_list() && !place.items().empty()) {
      Json::List items = place.items();
      items.erase(items.begin() + static_cast<std::ptrdiff_t>(below(items.size())));
      place = items;
    } else {
      place = interesting();
    }
  }
  void lengthen(Json& place) {
    if (place.is_object()) {
      place.set(words_.names[below(words_.names.size())], interesting());
    } else if (place.is_list() && !place.items().empty()) {
      place.push_back(Json(place.items()[below(place.items().size())]));
    } else {
      place = interesting();
    }
  }

  std::mt19937_64 random_;
  const Words& words_;
};

}  // namespace lockstep
