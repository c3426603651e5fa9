"""The command `vecmill optimize`, which finds the best plan for a model on this machine by measurement.

    candidates        the plans to try: engine, precision, lanes, token budget, rounding
    search            the choice of the plans to measure next, within the time limit
      bench           the measurements, in one process (`worker`) for each loaded engine
      journal         the stored measurements, for the continuation of an interrupted run
    measurements      the measurements of all plans, and derived figures
    choice            the choice of the best plan
    output_directory  the directory to serve from: model, manifest, prepared files, `report`, `plots`

The speed of a shared machine can drift by a third within minutes, so measurements are made in passes. Each
pass begins and ends with the safe plan, a plan in fp32 that is the baseline for all other plans. The speed of
a plan is measured relative to the safe plan in the same pass. The result is the median of several passes. The
difference between the two speeds of the safe plan in a pass shows the noise of the machine.
"""
