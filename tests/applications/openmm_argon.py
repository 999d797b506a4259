"""OpenMM on its OpenCL platform: 125 argon atoms for 200 steps."""

import numpy as np
import openmm
from openmm import unit

system = openmm.System()
force = openmm.NonbondedForce()
force.setNonbondedMethod(openmm.NonbondedForce.CutoffPeriodic)
force.setCutoffDistance(0.8)
side, spacing = 5, 0.36
system.setDefaultPeriodicBoxVectors(*(np.eye(3) * side * spacing))
positions = []
for i in range(side**3):
    system.addParticle(39.95)
    force.addParticle(0, 0.34, 0.996)
    positions.append([spacing * (i % side), spacing * (i // side % side), spacing * (i // side**2)])
system.addForce(force)
integrator = openmm.VerletIntegrator(0.002)
platform = openmm.Platform.getPlatformByName("OpenCL")
context = openmm.Context(system, integrator, platform, {"Precision": "single"})
context.setPositions(positions)
context.setVelocitiesToTemperature(120, 7)
integrator.step(200)
state = context.getState(getEnergy=True, getPositions=True)
print("potential energy", f"{state.getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole):.1f}")
print("kinetic energy", f"{state.getKineticEnergy().value_in_unit(unit.kilojoule_per_mole):.1f}")
