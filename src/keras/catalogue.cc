#include "lockstep/keras/catalogue.h"

#include "keras/registry.h"

namespace lockstep::keras::catalogue {
namespace {

const Catalogued& known(Kind kind) {
  switch (kind) {
    case Kind::layer: return known_layers();
    case Kind::loss: return known_losses();
    case Kind::metric: return known_metrics();
    case Kind::optimizer: return optimizers::known_optimizers();
    case Kind::schedule: return optimizers::known_schedules();
    case Kind::initializer: return known_initializers();
    case Kind::regularizer: return known_regularizers();
    case Kind::constraint: break;
  }
  return known_constraints();
}

}  // namespace

std::vector<std::string> class_names(Kind kind) { return known(kind).class_names(); }

Json parameters(Kind kind, const std::string& class_name, std::source_location where) {
  return known(kind).parameters(class_name, where);
}

}  // namespace lockstep::keras::catalogue
